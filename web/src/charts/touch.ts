/** Curves under fingers: two of them zoom and move the picture, one that goes sideways reads values.
 * One that goes up or down scrolls the page, as everywhere; a double tap shows the whole again. */
import type { Zoom } from "./line";

export interface Fingers {
  /** The part of x that is seen. */
  view: () => Zoom;
  /** All there is of x. */
  whole: () => Zoom;
  /** So it looks while the fingers move. */
  preview: (to: Zoom | null) => void;
  /** So it stays, when they are gone: one step in the history of the page. */
  zoom: (to: Zoom | null) => void;
  /** One finger is at this pixel. */
  read: (left: number, top: number) => void;
  leave: () => void;
}

/** The smallest part of all of x that two fingers make. */
const FINEST = 1e-9;
const NEAREST_PIXELS = 8;

/** What is seen once two fingers that were at `before` are at `after` (pixels from the left): what
 * lay under each of them still does. Null: all of it. Pure. */
export function pinched(view: Zoom, whole: Zoom, before: readonly [number, number], after: readonly [number, number], width: number): Zoom | null {
  const wide = view[1] - view[0];
  const apart = (pair: readonly [number, number]): number => Math.max(NEAREST_PIXELS, Math.abs(pair[1] - pair[0]));
  const times = apart(before) / apart(after);
  const middle = (pair: readonly [number, number]): number => (pair[0] + pair[1]) / 2;
  const under = view[0] + (wide * middle(before)) / width;
  const next = Math.max(wide * times, (whole[1] - whole[0]) * FINEST);
  const low = under - (next * middle(after)) / width;
  if (next >= whole[1] - whole[0]) return null;
  // the ends stay ends: there is nothing beyond them to look at
  const first = Math.min(Math.max(low, whole[0]), whole[1] - next);
  return [first, first + next];
}

/** Listens on the plot's surface; returns how to stop. */
export function follow(over: HTMLElement, fingers: Fingers): () => void {
  let began: { view: Zoom; at: [number, number] } | null = null;
  let reached: Zoom | null | undefined;
  const placeOf = (touch: Touch): [number, number] => {
    const box = over.getBoundingClientRect();
    return [touch.clientX - box.left, touch.clientY - box.top];
  };
  const twoOf = (event: TouchEvent): [number, number] => [placeOf(event.touches[0] as Touch)[0], placeOf(event.touches[1] as Touch)[0]];
  const start = (event: TouchEvent): void => {
    began = event.touches.length === 2 ? { view: fingers.view(), at: twoOf(event) } : null;
    if (began) {
      fingers.leave();
      event.preventDefault(); // else the page itself is zoomed
    }
  };
  const move = (event: TouchEvent): void => {
    if (began && event.touches.length === 2) {
      event.preventDefault();
      reached = pinched(began.view, fingers.whole(), began.at, twoOf(event), over.clientWidth);
      fingers.preview(reached);
    } else if (event.touches.length === 1 && !began) {
      fingers.read(...placeOf(event.touches[0] as Touch));
    }
  };
  const end = (event: TouchEvent): void => {
    if (event.touches.length) return; // a finger that is left over neither reads nor moves
    began = null;
    if (reached !== undefined) fingers.zoom(reached);
    reached = undefined;
    fingers.leave();
  };
  over.style.touchAction = "pan-y";
  over.addEventListener("touchstart", start, { passive: false });
  over.addEventListener("touchmove", move, { passive: false });
  over.addEventListener("touchend", end);
  over.addEventListener("touchcancel", end);
  return () => {
    over.removeEventListener("touchstart", start);
    over.removeEventListener("touchmove", move);
    over.removeEventListener("touchend", end);
    over.removeEventListener("touchcancel", end);
  };
}
