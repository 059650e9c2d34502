import { expect, test } from "vitest";

import { favourite } from "./favourite";

test("loss comes first", () => {
  expect(favourite(["lr", "acc", "val_loss", "loss"])).toBe("loss");
  expect(favourite(["lr", "top1_acc"])).toBe("top1_acc");
  expect(favourite(["lr"])).toBe("lr");
  expect(favourite([])).toBeNull();
});
