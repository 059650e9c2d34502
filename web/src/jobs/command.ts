/** The same list in a terminal. Pure. */
import { line } from "../look/line";
import type { Query } from "../look/url";

export function psLine(query: Query): string {
  const words = ["ps"];
  const states = (query.state ?? "").split(",").filter(Boolean);
  const several = states.length > 1 ? `state in (${states.join(", ")})` : "";
  const filter = [query.filter, several].filter(Boolean).join(" and ");
  if (states.length === 1) words.push("--state", states[0] as string);
  else if (!several) words.push("-a");
  if (query.user) words.push("--user", query.user);
  if (filter) words.push("--filter", filter);
  if (query.sort) words.push("--sort", query.sort);
  const measured = (query.columns ?? "").split(",").filter((word) => word.includes("."));
  if (measured.length) words.push("--columns", measured.join(","));
  return line(words);
}
