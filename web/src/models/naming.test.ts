import { expect, it } from "vitest";

import { isAlias, registerLine, registerPython, tagsOf } from "./naming";

it("takes as an alias what the server takes", () => {
  expect(["champion", "a-b_c", "Production", "冠军"].every(isAlias)).toBe(true);
  expect(["", "latest", "LATEST", "3", "v3", "a b", "a@b", "a".repeat(256)].some(isAlias)).toBe(false);
});

it("reads tags, and says where one is not key=value", () => {
  expect(tagsOf(" data=v7, note = a=b ,")).toEqual({ data: "v7", note: "a=b" });
  expect(tagsOf("")).toEqual({});
  expect(tagsOf("data")).toBeNull();
  expect(tagsOf("=v")).toBeNull();
});

it("writes a registration for the terminal and for Python", () => {
  const what = { model: "my digits", job: "brisk-otter", path: "best.pt", aliases: ["champion"], description: 'with "quotes"', tags: { data: "v7" } };
  expect(registerLine(what)).toBe(
    "windlass model register brisk-otter best.pt --as 'my digits' --alias champion --description 'with \"quotes\"' --tag data=v7",
  );
  expect(registerPython(what)).toContain(
    'client.models.register_run("my digits", "brisk-otter", "best.pt", aliases=["champion"], description="with \\"quotes\\"", tags={"data":"v7"})',
  );
  expect(registerLine({ ...what, path: "", aliases: [], description: "", tags: {} })).toBe("windlass model register brisk-otter --as 'my digits'");
});
