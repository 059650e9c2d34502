import { expect, test } from "vitest";

import { condition, conditions, joined, keyed } from "./filter";

test("a chip for each condition", () => {
  expect(conditions("metrics.loss < 0.3 and params.lr = 0.1 AND name like 'res%'")).toEqual([
    "metrics.loss < 0.3",
    "params.lr = 0.1",
    "name like 'res%'",
  ]);
  expect(conditions("  ")).toEqual([]);
});

test("an and in quotes, or within a word, parts nothing", () => {
  expect(conditions(`name = 'this and that' and tags."a and b" = x`)).toEqual([
    "name = 'this and that'",
    `tags."a and b" = x`,
  ]);
  expect(conditions("name = band and reason = android")).toEqual(["name = band", "reason = android"]);
  expect(conditions("name = 'open and not closed")).toEqual(["name = 'open and not closed"]);
});

test("chips put together are the filter again", () => {
  const filter = "metrics.loss < 0.3 and state in (running, queued)";
  expect(joined(conditions(filter))).toBe(filter);
  expect(joined(conditions("a = 1 and b = 2").filter((_, n) => n !== 0))).toBe("b = 2");
});

test("a plain word is looked for in the names", () => {
  expect(condition("resnet")).toBe("name ilike '%resnet%'");
  expect(condition(" it's ")).toBe("name ilike '%its%'");
  expect(condition("gpus > 1")).toBe("gpus > 1");
  expect(condition("name like 'a%'")).toBe("name like 'a%'");
  expect(condition("state in (running)")).toBe("state in (running)");
});

test("a key with blanks stands in quotes", () => {
  expect(keyed("metrics", "val/acc")).toBe("metrics.val/acc");
  expect(keyed("metrics", "top 5")).toBe('metrics."top 5"');
});
