/** An alias as a small label; with a cross where it may be taken away. */
import { ActionIcon } from "@mantine/core";
import type { ReactNode } from "react";

import { useWords } from "../i18n";
import { Icon } from "../look/Icon";
import css from "./models.module.css";
import { STAGES } from "./naming";
import { words } from "./words";

export function Alias({ alias, version, remove, busy }: {
  alias: string;
  /** Where it is, if that is not plain from where it stands. */
  version?: number;
  remove?: () => void;
  busy?: boolean;
}): ReactNode {
  const w = useWords(words);
  const stage = (STAGES as readonly string[]).includes(alias);
  const said = stage ? w.stages[alias as keyof typeof w.stages] : alias;
  return (
    <span className={css.alias} data-bare={remove ? undefined : true} data-alias={alias}>
      {said}
      {version !== undefined && <span className="quiet"> = {version}</span>}
      {remove && (
        <ActionIcon size={20} variant="subtle" color="gray" aria-label={w.removeAlias(said)} onClick={remove} disabled={busy ?? false}>
          <Icon name="close" size={12} />
        </ActionIcon>
      )}
    </span>
  );
}
