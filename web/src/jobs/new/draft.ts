/** What was written and not sent yet stays for this tab: Back and a reload lose nothing. */
import type { Script } from "./Doors";

export interface Draft {
  text: string;
  script: Script;
}

const KEY = "windlass-draft";

const SCRIPT = `import time

# Whatever is printed as key=value is drawn as a curve.
for step in range(1, 101):
    loss = 1 / step ** 0.5
    print(f"step={step} loss={loss:.4f}", flush=True)
    time.sleep(0.2)
`;

export const FIRST_DRAFT: Draft = { text: "run: python3 train.py\n", script: { name: "train.py", text: SCRIPT } };

export function keptDraft(): Draft {
  try {
    const kept = JSON.parse(sessionStorage.getItem(KEY) ?? "") as Partial<Draft>;
    if (typeof kept.text === "string" && typeof kept.script?.text === "string" && typeof kept.script.name === "string") return kept as Draft;
  } catch {
    // nothing was kept, or storage is closed to us
  }
  return FIRST_DRAFT;
}

export function keepDraft(draft: Draft): void {
  try {
    if (draft !== FIRST_DRAFT) sessionStorage.setItem(KEY, JSON.stringify(draft));
  } catch {
    // it is kept as long as the page is open
  }
}

export function dropDraft(): void {
  try {
    sessionStorage.removeItem(KEY);
  } catch {
    // there is nothing to drop
  }
}
