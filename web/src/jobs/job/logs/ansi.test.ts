import { expect, test } from "vitest";

import { contrast } from "../../../look/colours";
import { inked, PAPER, plain, spans } from "./ansi";

test("colours and weights begin and end where the line says", () => {
  expect(spans("\x1b[1;32mok\x1b[0m then \x1b[31mbad\x1b[39m!")).toEqual([
    { text: "ok", bold: true, colour: 2 },
    { text: " then " },
    { text: "bad", colour: 1 },
    { text: "!" },
  ]);
});

test("256 and true colours are read, with either separator", () => {
  expect(spans("\x1b[38;5;208ma\x1b[48;2;1;2;3mb\x1b[38:5:9mc")).toEqual([
    { text: "a", colour: "#ff8700" },
    { text: "b", colour: "#ff8700", back: "#010203" },
    { text: "c", colour: 9, back: "#010203" },
  ]);
});

test("numbers out of range change nothing and eat no text", () => {
  expect(spans("\x1b[38;5;999mx\x1b[999my\x1b[38mz")).toEqual([{ text: "x" }, { text: "y" }, { text: "z" }]);
});

test("inverse swaps paper and ink", () => {
  expect(spans("\x1b[7mx")).toEqual([{ text: "x", colour: "paper", back: "text" }]);
});

test("what is no colour is taken out: cursor moves, titles, links, control characters", () => {
  expect(plain("\x1b[2K\x1b[1Gnow\x1b]0;title\x07 \x1b]8;;https://x\x1b\\link\x1b]8;;\x1b\\\x08\x00.")).toBe("now link.");
  expect(plain("\x1b]0;never ended")).toBe("");
  expect(plain("tab\tstays")).toBe("tab\tstays");
});

test("markup stays text", () => {
  expect(spans("\x1b[31m<img src=x onerror=alert(1)>")).toEqual([{ text: "<img src=x onerror=alert(1)>", colour: 1 }]);
});

test("a hostile line is read in one go", () => {
  const line = "\x1b[".repeat(50_000) + "\x1b]".repeat(10);
  const began = performance.now();
  spans(line);
  expect(performance.now() - began).toBeLessThan(1000);
});

test.each(["light", "dark"] as const)("every colour can be read in the %s theme, on any background", (theme) => {
  const all = Array.from({ length: 256 }, (_, index) => index);
  for (const code of all) {
    const [span] = spans(`\x1b[38;5;${code}mx`);
    expect(contrast(inked(span!, theme).colour!, PAPER[theme])).toBeGreaterThanOrEqual(4.5);
  }
  for (const code of all) {
    for (const ink of ["", "\x1b[31m", "\x1b[97m", "\x1b[7m"]) {
      const [span] = spans(`\x1b[48;5;${code}m${ink}x`);
      const { colour, background } = inked(span!, theme);
      expect(contrast(colour!, background!)).toBeGreaterThanOrEqual(4.5);
    }
  }
});
