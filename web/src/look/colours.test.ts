import { expect, test } from "vitest";

import { PALETTE, colourOf, contrast, strokes } from "./colours";

const PAPER = { light: "#ffffff", dark: "#1a1d21" } as const;

test.each(["light", "dark"] as const)("every colour is seen on the paper of the %s theme", (theme) => {
  for (const each of PALETTE[theme]) expect(contrast(each, PAPER[theme])).toBeGreaterThan(4.5);
});

test("a job has its colour whatever stands beside it", () => {
  const alone = strokes(["j-1"], "light").get("j-1");
  const among = strokes(["j-3", "j-1", "j-2"], "light").get("j-1");
  expect(among?.colour).toBe(alone?.colour);
  expect(among?.colour).toBe(colourOf("j-1", "light"));
});

test("two of one colour have two patterns", () => {
  const ids = Array.from({ length: 40 }, (_, n) => `job-${n}`);
  const seen = new Set([...strokes(ids, "dark").values()].map((each) => each.colour + each.dash.join()));
  expect(seen.size).toBeGreaterThan(30);
});
