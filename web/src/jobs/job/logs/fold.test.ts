import { expect, test } from "vitest";

import { folded } from "./fold";

test("of a bar its last state is shown", () => {
  expect(folded("\r 10%\r 20%\r 30%")).toEqual({ text: " 30%", hidden: 2 });
});

test("a line that ends in a return keeps what it said", () => {
  expect(folded("100%\r")).toEqual({ text: "100%", hidden: 0 });
  expect(folded("\r\r")).toEqual({ text: "", hidden: 0 });
});

test("other lines stay as they are", () => {
  expect(folded("loss 0.3")).toEqual({ text: "loss 0.3", hidden: 0 });
});
