/** Which job the pointer is on, wherever that is: a row, a line, a cell. All others light up. */
import { useSyncExternalStore } from "react";

let hovered: string | null = null;
const heard = new Set<() => void>();

export function setHovered(id: string | null): void {
  if (id === hovered) return;
  hovered = id;
  heard.forEach((each) => each());
}

export function hoveredNow(): string | null {
  return hovered;
}

export function onHovered(change: () => void): () => void {
  heard.add(change);
  return () => void heard.delete(change);
}

/** The id that is hovered, or null. */
export function useHovered(): string | null {
  return useSyncExternalStore(onHovered, hoveredNow);
}

/** Whether this one is: renders only when that changes. */
export function useIsHovered(id: string): boolean {
  return useSyncExternalStore(onHovered, () => hovered === id);
}

/** For any element that stands for a job: `<tr {...lit(job.id)}>`. */
export function lit(id: string): {
  onPointerEnter: () => void;
  onPointerLeave: () => void;
  onFocus: () => void;
  onBlur: () => void;
} {
  const off = (): void => {
    if (hovered === id) setHovered(null);
  };
  const on = (): void => setHovered(id);
  return { onPointerEnter: on, onPointerLeave: off, onFocus: on, onBlur: off };
}
