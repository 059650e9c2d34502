import { expect, test } from "vitest";

import { pretty, rowsOf, typeOf, viewerOf } from "./viewing";

test.each([["a/b.PNG", "image"], ["x.svg", "image"], ["t.csv", "table"], ["r.json", "json"], ["notes.txt", "text"], ["src/README", "text"], ["page.html", "text"], ["model.pt", "none"], ["x", "none"]])(
  "%s is shown as %s",
  (path, viewer) => expect(viewerOf(path)).toBe(viewer),
);

test("CSV is read with its quotes", () => {
  expect(rowsOf('a,b\r\n"1,5","say ""x""\nnext"\n\nlast,')).toEqual({
    rows: [["a", "b"], ["1,5", 'say "x"\nnext'], ["last", ""]],
    all: 3,
  });
});

test("of many rows some are held and all are counted", () => {
  const { rows, all } = rowsOf("1\n".repeat(2000), ",", 10);
  expect([rows.length, all]).toEqual([10, 2000]);
});

test("what is not JSON is shown as it is", () => {
  expect(pretty('{"a":1}')).toBe('{\n  "a": 1\n}');
  expect(pretty("{broken")).toBe("{broken");
});

test("images have their type", () => {
  expect(typeOf("a.jpg")).toBe("image/jpeg");
  expect(typeOf("a.svg")).toBe("image/svg+xml");
});
