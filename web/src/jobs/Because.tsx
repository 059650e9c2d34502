/** Why a job is as it is: the server's sentence, or, where the page speaks another language, what
 * the server's code for it means. What only the sentence tells stays, marked as English. */
import type { ReactNode } from "react";

import { useLanguage, useWords } from "../i18n";
import { bytes, value } from "../i18n/format";
import { lacks, type Lack } from "../queues/missing";
import { words } from "./becauseWords";

/** Codes whose sentence names what nothing else does: which rank, who stopped it. */
const TELLING = new Set(["held", "failed", "oom", "hung", "lost", "refused", "cancelled", "preempted", "exceeds-max", "budget-spent"]);

export function Because({ said, code, missing }: {
  said: string;
  code?: string | null;
  missing?: Readonly<Record<string, number>>;
}): ReactNode {
  const w = useWords(words);
  const { language } = useLanguage();
  if (language === "en" || !said) return said;
  const known = w.codes[code ?? ""];
  if (!known) return <span lang="en">{said}</span>;
  const short = lacks(missing).map((each) => amount(each, w, language));
  return (
    <>
      {short.length ? `${known}，${w.lacks(short.join("、"))}` : known}
      {TELLING.has(code ?? "") && <span lang="en">{` · ${said}`}</span>}
    </>
  );
}

function amount({ kind, name, amount: much }: Lack, w: (typeof words)["zh"], language: "en" | "zh"): string {
  if (kind === "memory") return bytes(much, language);
  if (kind === "other") return `${value(much, language)} ${name}`;
  return [value(much, language), w[kind], name].filter(Boolean).join(" ");
}
