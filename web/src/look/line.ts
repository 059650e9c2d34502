/** Lines for a terminal, with what a shell would misread in quotes. */
export function quote(word: string): string {
  return /^[A-Za-z0-9_./:=@%+,-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** `line("user", "create", name, role && ["--role", role])`: what is empty is left out. */
export function line(...words: (string | readonly string[] | false | null | undefined | "")[]): string {
  const kept = words.flatMap((each) => (each === false || each === null || each === undefined ? [] : each));
  return ["windlass", ...kept.filter((each) => each !== "")].map(quote).join(" ");
}
