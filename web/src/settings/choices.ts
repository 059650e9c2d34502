/** Choices that this browser keeps. `public/before-paint.js` reads the density before the first
 * paint; `shell/keys.ts` asks for the letters at each key. */
export type Density = "roomy" | "compact";

function keep(key: string, value: string): void {
  try {
    localStorage.setItem(key, value);
  } catch {
    // storage is closed to us: it holds until the page is loaded anew
  }
}

export function density(): Density {
  return document.documentElement.dataset["density"] === "compact" ? "compact" : "roomy";
}

export function setDensity(next: Density): void {
  keep("windlass-density", next);
  document.documentElement.dataset["density"] = next;
}

export function setLetters(work: boolean): void {
  keep("windlass-keys", work ? "on" : "off");
}

/** "Firefox 130 on Linux": what a person calls the browser of a user-agent line. */
export function browserName(agent: string): string {
  const [, name, version] =
    /(Edg|OPR|Firefox|Chrome|HeadlessChrome)\/(\d+)/.exec(agent.replace(/Chrome\/(\d+).*\b(Edg|OPR)\/(\d+)/, "$2/$3")) ??
    /()Version\/(\d+).*Safari/.exec(agent) ?? [];
  const system = /Windows|Android|iPhone|iPad|Mac OS X|CrOS|Linux/.exec(agent)?.[0].replace("Mac OS X", "macOS");
  if (name === undefined) return agent.slice(0, 60) || "–";
  const said = { Edg: "Edge", OPR: "Opera", HeadlessChrome: "Chrome", "": "Safari" }[name] ?? name;
  return [`${said} ${version}`, system].filter(Boolean).join(" · ");
}
