import { expect, test, vi } from "vitest";

vi.mock("./client", () => ({ BASE: "/", headers: () => ({}), logIn: () => undefined }));
const { Splitter } = await import("./live");

const TEXT = 'event: event\nid: 7\ndata: {"a":1}\n\n: ping\n\nevent: log\ndata: "x\\ny"\n\nevent: end\r\ndata: {}\r\n\r\n';

test("a stream is the same in whatever pieces it arrives", () => {
  const whole = [...new Splitter().take(TEXT)];
  expect(whole.map((each) => each.kind)).toEqual(["event", "log", "end"]);
  expect(whole[0]).toEqual({ kind: "event", id: "7", data: { a: 1 } });
  for (let size = 1; size < 9; size++) {
    const splitter = new Splitter();
    const found = [];
    for (let at = 0; at < TEXT.length; at += size) found.push(...splitter.take(TEXT.slice(at, at + size)));
    expect(found).toEqual(whole);
  }
});

test("half a message is none yet", () => {
  expect([...new Splitter().take('event: log\ndata: "x"\n')]).toEqual([]);
});
