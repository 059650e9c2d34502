import { expect, test } from "vitest";

import { psLine } from "./command";

test("the list of the page as a line for the terminal", () => {
  expect(psLine({})).toBe("windlass ps -a");
  expect(psLine({ state: "failed", user: "ann" })).toBe("windlass ps --state failed --user ann");
  expect(psLine({ state: "failed,queued", filter: "gpus > 1", sort: "-metrics.loss", columns: "user,params.lr" })).toBe(
    "windlass ps --filter 'gpus > 1 and state in (failed, queued)' --sort -metrics.loss --columns params.lr",
  );
});
