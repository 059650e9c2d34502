/** Keys that hold everywhere, unless one is writing. `g` then a letter goes to a page. */
import { useEffect, useRef } from "react";

export type Keys = Readonly<Record<string, (event: KeyboardEvent) => void>>;

export function isWriting(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
  );
}

/** Letters alone can be switched off in Settings (WCAG 2.1.4): speech and slips of the hand. */
export function lettersWork(): boolean {
  try {
    return localStorage.getItem("windlass-keys") !== "off";
  } catch {
    return true;
  }
}

/** `{"j": …, "g h": …, "mod+k": …}`; mod is Ctrl, or ⌘ on a Mac. */
export function useKeys(keys: Keys): void {
  const latest = useRef(keys);
  latest.current = keys;
  useEffect(() => {
    let first = "";
    let since = 0;
    const pressed = (event: KeyboardEvent): void => {
      if (event.defaultPrevented || event.altKey) return;
      const mod = event.ctrlKey || event.metaKey;
      const name = mod ? `mod+${event.key.toLowerCase()}` : event.key;
      if (!mod && (isWriting(event.target) || (event.key.length === 1 && !lettersWork()))) return;
      const pair = first && event.timeStamp - since < 1200 ? `${first} ${name}` : "";
      const found = latest.current[pair] ?? latest.current[name];
      first = name;
      since = event.timeStamp;
      if (found) {
        event.preventDefault();
        first = "";
        found(event);
      }
    };
    window.addEventListener("keydown", pressed);
    return () => window.removeEventListener("keydown", pressed);
  }, []);
}
