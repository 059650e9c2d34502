/** One's own: how pages look, the password, where one is logged in, keys and tokens. */
import { SegmentedControl, SimpleGrid, Stack, Switch, Text, useMantineColorScheme } from "@mantine/core";
import { useState, type ReactNode } from "react";

import { useLanguage, useWords, type Language } from "../i18n";
import { Keys } from "../keys/Keys";
import { Tokens } from "../keys/Tokens";
import { Page } from "../look/Page";
import { Part } from "../look/Part";
import { lettersWork } from "../shell/keys";
import { useWho } from "../shell/who";
import { density, setDensity, setLetters, type Density } from "./choices";
import { Password } from "./Password";
import { Sessions } from "./Sessions";
import { words } from "./words";

export default function Settings(): ReactNode {
  const w = useWords(words);
  const who = useWho();
  return (
    <Page title={w.title}>
      <SimpleGrid cols={{ base: 1, md: 2 }} spacing="md" verticalSpacing={0}>
        <Look />
        <Password />
      </SimpleGrid>
      <Sessions />
      {who.may("key.own") && who.project && (
        <>
          <Keys />
          <Tokens />
        </>
      )}
    </Page>
  );
}

function Look(): ReactNode {
  const w = useWords(words);
  const { language, choose } = useLanguage();
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const [dense, setDense] = useState<Density>(density());
  const [letters, setLettersShown] = useState(lettersWork());
  return (
    <Part title={w.look} hint={w.lookHint}>
      <Stack gap="md">
        <Choice label={w.theme} value={colorScheme} data={(["auto", "light", "dark"] as const).map((each) => ({ value: each, label: w.themes[each] }))}
          choose={(next) => setColorScheme(next as "auto")} />
        <Choice label={w.language} value={language} data={[{ value: "en", label: <span lang="en">English</span> }, { value: "zh", label: <span lang="zh">中文</span> }]} choose={(next) => choose(next as Language)} />
        <Choice label={w.density} value={dense} data={(["roomy", "compact"] as const).map((each) => ({ value: each, label: w.densities[each] }))}
          choose={(next) => { setDensity(next as Density); setDense(next as Density); }} />
        <Switch label={w.letters} description={`${w.lettersHint} ${w.keyList}`} checked={letters}
          onChange={(event) => { setLetters(event.currentTarget.checked); setLettersShown(event.currentTarget.checked); }} />
      </Stack>
    </Part>
  );
} // prettier-ignore

function Choice({ label, value, data, choose }: {
  label: string;
  value: string;
  data: { value: string; label: ReactNode }[];
  choose: (next: string) => void;
}): ReactNode {
  return (
    <div>
      <Text size="sm" fw={500} mb={4}>{label}</Text>
      <SegmentedControl aria-label={label} value={value} data={data} onChange={choose} size="sm" />
    </div>
  );
} // prettier-ignore
