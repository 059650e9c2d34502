import { expect, test } from "vitest";

import { paramsIn, valueOf } from "./argv";

test("parameters are found in each of their forms", () => {
  const run = ["python", "train.py", "--lr", "0.1", "--name=x y", "seed=3", "--flag", "--bias", "-2", "--", "path/a=b"];
  expect([...paramsIn(run)]).toEqual([["lr", "0.1"], ["name", "x y"], ["seed", "3"], ["bias", "-2"]]);
});

test.each([["1", 1], ["-2.5e-3", -0.0025], ["true", true], ["1e999", "1e999"], ["007x", "007x"], ["", ""], ["99999999999999999999", "99999999999999999999"]])(
  "%s is taken as %s",
  (text, value) => expect(valueOf(text)).toBe(value),
);
