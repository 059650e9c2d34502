/** Which field of a form the server's refusal is about, in its own words. */
import { Refused } from "../api/client";

export interface FieldErrors<F extends string> {
  at: Partial<Record<F, string>>;
  /** What is about none of the fields: shown above the button. */
  rest: unknown;
}

/** `names` are the form's fields. `amounts.gpus` belongs to `amounts`; a refusal without a list may
 * still begin with `name: …`. */
export function fieldErrors<F extends string>(error: unknown, names: readonly F[]): FieldErrors<F> {
  if (!error) return { at: {}, rest: null };
  if (!(error instanceof Refused)) return { at: {}, rest: error };
  const at: Partial<Record<F, string>> = {};
  let strange = 0;
  for (const each of error.fields) {
    const name = owner(each.field, names);
    if (!name) strange += 1;
    else at[name] ??= `${each.allowed} (${each.found})`;
  }
  if (Object.keys(at).length) return { at, rest: strange ? error : null };
  const [, word, said] = /^([a-z_.]+): (.*)$/s.exec(error.message) ?? [];
  const name = word && owner(word, names);
  if (name && said && !strange) return { at: { [name]: said } as Partial<Record<F, string>>, rest: null };
  return { at: {}, rest: error };
}

function owner<F extends string>(field: string, names: readonly F[]): F | undefined {
  return names.find((name) => field === name) ?? names.find((name) => field.startsWith(`${name}.`));
}
