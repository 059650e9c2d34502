/** A carriage return goes back to the start of the line: of a bar that was drawn a thousand times
 * one line is left, as a terminal would show it. */

export interface Folded {
  text: string;
  /** How many earlier states of the line are not shown. */
  hidden: number;
}

export function folded(text: string): Folded {
  if (!text.includes("\r")) return { text, hidden: 0 };
  const states = text.split("\r").filter((each) => each !== "");
  return { text: states.at(-1) ?? "", hidden: Math.max(0, states.length - 1) };
}
