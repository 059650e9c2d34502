/** Which metric is drawn where only one has room. Pure. */

/** The metric that people look at first. */
export function favourite(keys: readonly string[]): string | null {
  const tests = [/^loss$/i, /^(train|val|eval)[_/.]loss$/i, /loss/i, /acc/i, /reward|score|auc|f1/i];
  for (const test of tests) {
    const found = keys.find((key) => test.test(key));
    if (found) return found;
  }
  return keys[0] ?? null;
}
