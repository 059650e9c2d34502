import { expect, test } from "vitest";

import { digester, parseLine, Walk } from "./chain";
import rows from "./chain.rows.json"; // written by core/audit.py itself

const digest = digester() as (text: string) => Promise<string>;

async function walk(lines: readonly string[]): Promise<Walk> {
  const found = new Walk(digest);
  for (const line of lines) if (!(await found.take(parseLine(line)))) break;
  return found;
}

test("rows that the server chained fit: floats, odd keys and all", async () => {
  const found = await walk(rows);
  expect(found.broken).toBeNull();
  expect(found.rows).toBe(3);
});

test("a row that was changed is named", async () => {
  const changed = [rows[0], (rows[1] as string).replace('"ann"', '"bob"'), rows[2]] as string[];
  expect((await walk(changed)).broken).toEqual({ row: 2, why: "changed" });
});

test("a row that was taken out is named", async () => {
  expect((await walk([rows[0], rows[2]] as string[])).broken).toEqual({ row: 2, why: "missing" });
});

test("an end that was cut off is noticed by what was noted", async () => {
  const found = await walk(rows.slice(0, 2));
  found.end({ number: 3, hash: parseLine(rows[2] as string).hash }, () => undefined);
  expect(found.broken).toEqual({ row: 3, why: "end" });
});

test("what is no row is refused", () => {
  for (const text of ["", "[]", "{", '{"number": 1}', '{"number": 1, "hash": "x"} x']) expect(() => parseLine(text)).toThrow();
});
