/** Code from the browser to the server: files by content, sent only where they are not there yet. */
import { api, BASE, got, headers, refusal, type Schema } from "../../api/client";

export interface CodeFile {
  path: string;
  blob: Blob;
}

const LEFT_OUT = new Set([".git", ".hg", ".svn", ".venv", "venv", "__pycache__", "node_modules", ".ipynb_checkpoints", ".DS_Store"]);
const AT_ONCE = 4;

/** Hashes need a page that came over https or from this machine: elsewhere browsers have none. */
export function canHash(): boolean {
  return typeof crypto !== "undefined" && crypto.subtle !== undefined;
}

/** A folder that was chosen is the root of the job: its own name is left off. */
export function pathOf(relative: string, name: string): string {
  const parts = (relative || name).split("/");
  return (relative ? parts.slice(1) : parts).join("/") || name;
}

export function isCode(path: string): boolean {
  return !path.split("/").some((part) => LEFT_OUT.has(part) || part.endsWith(".pyc"));
}

/** The later of two files with one path holds. */
export function merged(old: readonly CodeFile[], more: readonly CodeFile[]): CodeFile[] {
  const found = new Map(old.map((each) => [each.path, each]));
  for (const each of more) found.set(each.path, each);
  return [...found.values()].sort((one, other) => (one.path < other.path ? -1 : 1));
}

/** What such a folder is most likely run with. */
export function guessedCommand(files: readonly CodeFile[]): string | null {
  const scripts = files.map((each) => each.path).filter((path) => path.endsWith(".py"));
  const names = ["train.py", "main.py", "run.py"];
  const script = names.find((name) => scripts.includes(name)) ?? scripts.find((path) => !path.includes("/")) ?? scripts[0];
  return script ? `python3 ${/^[\w./-]+$/.test(script) ? script : `'${script}'`}` : null;
}

export async function digestOf(blob: Blob): Promise<string> {
  const hash = await crypto.subtle.digest("SHA-256", await blob.arrayBuffer());
  return [...new Uint8Array(hash)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The bundle's digest, once the server has all of it. `told` hears how many bytes are to go. */
export async function send(files: readonly CodeFile[], told: (sent: number, all: number) => void): Promise<string> {
  const listed: Schema["BundleFile"][] = [];
  const blobs = new Map<string, Blob>();
  for (const { path, blob } of files) {
    const digest = await digestOf(blob);
    blobs.set(digest, blob);
    listed.push({ path, digest, size: blob.size, mode: 0o644 });
  }
  const record = (): Promise<Schema["BundleAnswer"]> => got(api.POST("/api/v1/bundles", { body: { files: listed } }));
  const { digest, missing } = await record();
  const all = missing.reduce((sum, each) => sum + (blobs.get(each)?.size ?? 0), 0);
  let sent = 0;
  const left = [...missing];
  const one = async (): Promise<void> => {
    for (let each = left.shift(); each; each = left.shift()) {
      const blob = blobs.get(each) as Blob;
      await put(each, blob);
      sent += blob.size;
      told(sent, all);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, one));
  if (missing.length) await record(); // it is complete now, and noted so
  return digest;
}

async function put(digest: string, blob: Blob): Promise<void> {
  const answer = await fetch(`${BASE}api/v1/blobs/${digest}`, {
    method: "PUT",
    headers: { ...headers(), "Content-Type": "application/octet-stream" },
    body: blob,
  });
  if (!answer.ok) throw await refusal(answer);
}
