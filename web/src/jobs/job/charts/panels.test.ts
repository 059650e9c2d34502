import { expect, test } from "vitest";

import { grouped, readKeys, readZoom, writeKeys, writeZoom } from "./panels";

test("metrics of one prefix are together, and numbers count as numbers", () => {
  expect(grouped(["val/loss", "train/loss10", "train/loss2", "lr", "train/loss2"])).toEqual([
    { name: "", keys: ["lr"] },
    { name: "train", keys: ["train/loss2", "train/loss10"] },
    { name: "val", keys: ["val/loss"] },
  ]);
});

test("markup makes no groups", () => {
  expect(grouped(["<img src=x onerror=window.ran=1>", "0.5/x"])).toEqual([
    { name: "", keys: ["<img src=x onerror=window.ran=1>"] },
    { name: "0", keys: ["0.5/x"] },
  ]);
});

test("keys come back from the address whatever is in them", () => {
  const keys = ["a,b", "<script>", "100%", "损失/训练"];
  expect(readKeys(writeKeys(keys))).toEqual(keys);
  expect(readKeys("%zz")).toEqual(["%zz"]);
  expect(writeKeys([])).toBeUndefined();
});

test("a zoom comes back, and nonsense is none", () => {
  expect(readZoom(writeZoom([1.5, 40]))).toEqual([1.5, 40]);
  for (const each of ["", "5", "9..1", "a..b", undefined]) expect(readZoom(each)).toBeNull();
});
