import { expect, test } from "vitest";

import { type Chunk, lineName, type LogLine, LogWindow, parseLine, utf8Length } from "./window";

const line = (offset: number, text: string, rank = "worker-0-0", at = 1000 + offset): LogLine => ({
  at, rank, stream: "out", offset, text, attempt: 1,
}); // prettier-ignore
const chunk = (offset: number, text: string, rank = "worker-0-0"): Chunk => ({
  rank, stream: "out", attempt: 1, offset, end: offset + utf8Length(text),
  at: new Date(1000 + offset).toISOString(), text,
}); // prettier-ignore
const fresh = (most = { lines: 1000, characters: 1_000_000 }): LogWindow => new LogWindow(most, (tell) => tell());
const texts = (window: LogWindow): string[] => window.lines.map((each) => each.text);

test("live output goes on in the middle of a line", () => {
  const window = fresh();
  window.set([], true, true);
  window.hear(chunk(0, "one\ntw"));
  expect(texts(window)).toEqual(["one", "tw"]);
  window.hear(chunk(6, "o\nthree\n"));
  expect(texts(window)).toEqual(["one", "two", "three"]);
  expect(window.lines.map((each) => each.offset)).toEqual([0, 4, 8]);
});

test("a bar that is drawn again and again stays one line", () => {
  const window = fresh();
  window.set([], true, true);
  window.hear(chunk(0, "\r10%"));
  window.hear(chunk(4, "\r20%"));
  expect(texts(window)).toEqual(["\r10%\r20%"]);
});

test("what was read and is told again is held once, and made whole", () => {
  const window = fresh();
  window.set([line(0, "one"), line(4, "tw")], true, true);
  expect(window.offsets().get("1.worker-0-0.out")).toBe(4);
  window.hear(chunk(4, "two\nthree\n"));
  expect(texts(window)).toEqual(["one", "two", "three"]);
  window.hear(chunk(0, "one\n"));
  expect(texts(window)).toEqual(["one", "two", "three"]);
});

test("a stream that begins before what is held adds only what is new", () => {
  const window = fresh();
  window.set([line(4, "two"), line(8, "thr")], false, true);
  window.hear(chunk(0, "one\ntwo\nthree\nfour"));
  expect(texts(window)).toEqual(["two", "three", "four"]);
  window.hear(chunk(18, "!\n"));
  expect(texts(window)).toEqual(["two", "three", "four!"]);
});

test("older lines come before, once, and live output goes on at its line", () => {
  const window = fresh();
  window.set([line(8, "thr")], false, true);
  window.hear(chunk(8, "thre"));
  expect(window.older([line(0, "one"), line(4, "two"), line(8, "thr")], true)).toBe(2);
  window.hear(chunk(12, "e\n"));
  expect(texts(window)).toEqual(["one", "two", "three"]);
  expect(window.fromStart).toBe(true);
});

test("of lines of one and the same time only those before are older", () => {
  const window = fresh();
  window.set([line(8, "c", "worker-0-0", 5), line(12, "d", "worker-0-0", 5)], false, false);
  const page = [0, 4, 8, 12, 16].map((offset) => line(offset, "abcde"[offset / 4]!, "worker-0-0", 5));
  expect(window.older(page, false)).toBe(2);
  expect(texts(window)).toEqual(["a", "b", "c", "d"]);
});

test("ranks do not run into each other", () => {
  const window = fresh();
  window.set([], true, true);
  window.hear(chunk(0, "a1 ", "worker-0-0"));
  window.hear(chunk(0, "b1 ", "worker-1-0"));
  window.hear(chunk(3, "a2\n", "worker-0-0"));
  expect(texts(window)).toEqual(["a1 a2", "b1 "]);
});

test("the next page leaves out what is held", () => {
  const window = fresh();
  window.set([line(0, "one"), line(4, "two")], true, false);
  expect(window.add([line(4, "two"), line(8, "three")])).toBe(1);
  expect(texts(window)).toEqual(["one", "two", "three"]);
});

test("old output of a rank that wrote long ago is not shown as new", () => {
  const window = fresh();
  window.set([line(5000, "late")], false, true);
  window.hear(chunk(0, "early\n", "worker-9-0"));
  expect(texts(window)).toEqual(["late"]);
});

test("what lies in the middle of the log hears nothing live", () => {
  const window = fresh();
  window.set([line(0, "one")], true, false);
  window.hear(chunk(4, "two\n"));
  expect(texts(window)).toEqual(["one"]);
});

test("lines leave at the front, and live output still finds its line", () => {
  const window = fresh({ lines: 3, characters: 1_000_000 });
  window.set([line(0, "one"), line(4, "two"), line(8, "three")], true, true);
  window.hear(chunk(14, "four\nfi"));
  window.trim();
  expect(texts(window)).toEqual(["three", "four", "fi"]);
  expect(window.fromStart).toBe(false);
  window.hear(chunk(21, "ve\n"));
  expect(texts(window)).toEqual(["three", "four", "five"]);
});

test("many characters leave as well as many lines", () => {
  const window = fresh({ lines: 1000, characters: 10 });
  window.set([line(0, "12345678"), line(9, "12345678")], true, true);
  window.trim();
  expect(window.lines.length).toBe(1);
});

test("a line is found by its name, and a place inside it too", () => {
  const window = fresh();
  window.set([line(0, "one"), line(4, "two"), line(0, "x", "worker-1-0")], true, true);
  expect(window.find({ rank: "worker-0-0", stream: "out", offset: 4 })).toBe(1);
  expect(window.find({ rank: "worker-0-0", stream: "out", offset: 2 })).toBe(0);
  expect(window.find({ rank: "worker-2-0", stream: "out", offset: 0 })).toBe(-1);
  expect(parseLine(lineName(line(4, "two")))).toEqual({ rank: "worker-0-0", stream: "out", offset: 4, at: 1004 });
  expect(parseLine("nonsense")).toBeNull();
});

test("a hundred thousand lines are taken in well under a second", () => {
  const window = fresh({ lines: 200_000, characters: 1e9 });
  const began = performance.now();
  window.set(Array.from({ length: 100_000 }, (_, at) => line(at * 10, `line ${at}`)), true, true);
  expect(performance.now() - began).toBeLessThan(800);
});

test("bytes are counted as they are written", () => {
  for (const text of ["abc", "né", "中文", "a🙂b"]) expect(utf8Length(text)).toBe(new TextEncoder().encode(text).length);
});
