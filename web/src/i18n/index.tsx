/** Two languages without a library. Each folder has `words.ts` with `en` and `zh`; `en` is the
 * type, so a string that is missing in the other fails the build. Entries are strings or functions
 * that make one. */
import { createContext, useContext, useMemo, useState, type ReactNode } from "react";

export type Language = "en" | "zh";
type Entry = string | ((...values: never[]) => string);
export type Catalogue = { readonly [key: string]: Entry | Catalogue };
export type Same<T> = {
  readonly [K in keyof T]: T[K] extends string
    ? string
    : T[K] extends (...values: infer V) => string
      ? (...values: V) => string
      : Same<T[K]>;
};
export interface Words<T> {
  en: T;
  zh: Same<T>;
}

const KEY = "windlass-language";
const Chosen = createContext<{ language: Language; choose: (language: Language) => void }>({
  language: "en",
  choose: () => undefined,
});

export function Languages({ children }: { children: ReactNode }): ReactNode {
  const [language, set] = useState<Language>(document.documentElement.lang === "zh" ? "zh" : "en");
  const value = useMemo(
    () => ({
      language,
      choose: (next: Language) => {
        try {
          localStorage.setItem(KEY, next);
        } catch {
          // storage is closed to us: it holds until the page is loaded anew
        }
        document.documentElement.lang = next;
        set(next);
      },
    }),
    [language],
  );
  return <Chosen value={value}>{children}</Chosen>;
}

export function useLanguage(): { language: Language; choose: (language: Language) => void } {
  return useContext(Chosen);
}

/** The words of one folder in the language of the page. */
export function useWords<T>(words: Words<T>): T {
  const { language } = useContext(Chosen);
  return words[language] as T;
}
