/** How models are named and written down: aliases, tags, commands, code. */
import { line } from "../look/line";

export const STAGES = ["None", "Staging", "Production", "Archived"] as const;

/** Whether the server takes this as an alias. */
export function isAlias(text: string): boolean {
  return /^[\p{L}\p{N}_-]{1,255}$/u.test(text) && text.toLowerCase() !== "latest" && !/^v?[0-9]+$/i.test(text);
}

/** `data=v7, kind=cnn` as a record; null where a part is not so. */
export function tagsOf(text: string): Record<string, string> | null {
  const found: Record<string, string> = {};
  for (const part of text.split(",").map((each) => each.trim()).filter(Boolean)) {
    const at = part.indexOf("=");
    if (at < 1) return null;
    found[part.slice(0, at).trim()] = part.slice(at + 1).trim();
  }
  return found;
}

export interface Registration {
  model: string;
  job: string;
  path: string;
  aliases: readonly string[];
  description: string;
  tags: Readonly<Record<string, string>>;
}

export function registerLine(what: Registration): string {
  return line(
    "model", "register", what.job || "JOB", what.path, "--as", what.model || "NAME",
    what.aliases.flatMap((alias) => ["--alias", alias]),
    what.description && ["--description", what.description],
    Object.entries(what.tags).flatMap(([key, value]) => ["--tag", `${key}=${value}`]),
  ); // prettier-ignore
}

export function registerPython(what: Registration): string {
  const about = [
    what.aliases.length && `aliases=${literal(what.aliases)}`,
    what.description && `description=${literal(what.description)}`,
    Object.keys(what.tags).length && `tags=${literal(what.tags)}`,
  ].filter(Boolean);
  const words = [literal(what.model || "NAME"), literal(what.job || "JOB"), literal(what.path), ...about];
  return `import windlass\n\nclient = windlass.Client()\nclient.models.register_run(${words.join(", ")})\n`;
}

export function usePython(ref: string, folder: string): string {
  return `import windlass\n\nclient = windlass.Client()\nclient.models.download(${literal(ref)}, ${literal(folder)})\n`;
}

/** JSON of texts, lists and tables of texts is Python too. */
function literal(value: unknown): string {
  return JSON.stringify(value);
}
