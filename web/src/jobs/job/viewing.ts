/** How a file can be shown, by its name and size; and tables out of CSV. */
export type Viewer = "image" | "text" | "json" | "table" | "none";

const KINDS: readonly (readonly [Viewer, RegExp])[] = [
  ["image", /\.(png|jpe?g|gif|webp|bmp|svg)$/i],
  ["table", /\.(csv|tsv)$/i],
  ["json", /\.json$/i],
  ["text", /(\.(txt|md|log|py|ya?ml|toml|ini|cfg|sh|jsonl|html?|xml|css|js|ts|rst|conf|env)|(^|\/)[A-Z]+|\.gitignore)$/],
];
export const MOST: Readonly<Record<Exclude<Viewer, "none">, number>> = {
  image: 20_000_000, table: 5_000_000, json: 2_000_000, text: 2_000_000,
}; // prettier-ignore
export const MOST_ROWS = 500;

export function viewerOf(path: string): Viewer {
  return KINDS.find(([, names]) => names.test(path))?.[0] ?? "none";
}

export function typeOf(path: string): string {
  const [, end = ""] = /\.([a-z]+)$/i.exec(path) ?? [];
  const kind = end.toLowerCase();
  return `image/${kind === "jpg" ? "jpeg" : kind === "svg" ? "svg+xml" : kind}`;
}

/** Rows of a CSV file: quotes, doubled quotes, line ends in quotes. At most so many. */
export function rowsOf(text: string, separator = ",", most = MOST_ROWS + 1): { rows: string[][]; all: number } {
  const rows: string[][] = [];
  let all = 0;
  let row: string[] = [];
  let cell = "";
  let quoted = false;
  const end = (): void => {
    row.push(cell);
    cell = "";
    if (row.length > 1 || row[0] !== "") {
      all += 1;
      if (rows.length < most) rows.push(row);
    }
    row = [];
  };
  for (let at = 0; at < text.length; at++) {
    const letter = text[at] as string;
    if (quoted) {
      if (letter !== '"') cell += letter;
      else if (text[at + 1] === '"') (cell += '"'), (at += 1);
      else quoted = false;
    } else if (letter === '"' && cell === "") quoted = true;
    else if (letter === separator) row.push(cell), (cell = "");
    else if (letter === "\n") end();
    else if (letter !== "\r") cell += letter;
  }
  if (cell !== "" || row.length) end();
  return { rows, all };
}

/** JSON with indents; as it is where it is none. */
export function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
