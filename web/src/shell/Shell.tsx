/** The frame of every page: where one can go, who one is, whether it is live. */
import {
  ActionIcon, AppShell, Badge, Burger, Button, Group, Menu, NavLink, ScrollArea, Select, Text, Tooltip,
  UnstyledButton, useComputedColorScheme, useMantineColorScheme,
} from "@mantine/core"; // prettier-ignore
import { useDisclosure } from "@mantine/hooks";
import { Link, Outlet, useLocation, useNavigate } from "@tanstack/react-router";
import { lazy, Suspense, useEffect, useState, type ReactNode } from "react";

import { api, got, logIn, type Schema } from "../api/client";
import { useLanguage, useWords } from "../i18n";
import { Icon, type IconName } from "../look/Icon";
import { useHealth } from "./feed";
import { useKeys } from "./keys";
import { useWho } from "./who";
import { words } from "./words";

const Palette = lazy(() => import("./Palette"));
const KeyHelp = lazy(() => import("./KeyHelp"));

type Word = "home" | "jobs" | "compare" | "studies" | "models" | "nodes" | "queues" | "usage" | "audit" | "admin" | "settings";
interface Place {
  to: string;
  word: Word;
  right?: Schema["Right"];
}

export const PLACES: readonly { group: "work" | "results" | "cluster" | "people"; places: readonly Place[] }[] = [
  {
    group: "work",
    places: [
      { to: "/", word: "home" },
      { to: "/jobs", word: "jobs", right: "job.read" },
      { to: "/compare", word: "compare", right: "job.read" },
      { to: "/studies", word: "studies", right: "job.read" },
    ],
  },
  { group: "results", places: [{ to: "/models", word: "models", right: "model.read" }] },
  {
    group: "cluster",
    places: [
      { to: "/nodes", word: "nodes", right: "node.read" },
      { to: "/queues", word: "queues", right: "queue.read" },
    ],
  },
  {
    group: "people",
    places: [
      { to: "/usage", word: "usage", right: "usage.read" },
      { to: "/audit", word: "audit", right: "audit.read" },
      { to: "/admin", word: "admin", right: "project.read" },
      { to: "/settings", word: "settings" },
    ],
  },
];

export function Shell(): ReactNode {
  const w = useWords(words);
  const { language, choose } = useLanguage();
  const who = useWho();
  const navigate = useNavigate();
  const location = useLocation();
  const [opened, { toggle, close }] = useDisclosure();
  const [palette, setPalette] = useState(false);
  const [help, setHelp] = useState(false);
  const { setColorScheme } = useMantineColorScheme();
  const scheme = useComputedColorScheme("light");

  useEffect(close, [location.pathname, close]);
  useKeys({
    "mod+k": () => setPalette(true),
    "?": () => setHelp(true),
    "g h": () => void navigate({ to: "/" }),
    "g j": () => void navigate({ to: "/jobs" }),
    n: () => void navigate({ to: "/jobs/new" }),
  });

  const here = (to: string): boolean =>
    to === "/" ? location.pathname === "/" : location.pathname.startsWith(to);
  const leave = async (): Promise<void> => {
    await got(api.POST("/api/v1/logout", { body: {} }));
    logIn();
  };

  return (
    <AppShell
      header={{ height: 52 }}
      navbar={{ width: 196, breakpoint: "sm", collapsed: { mobile: !opened } }}
      padding="md"
    >
      <a href="#page" className="seen-only-by-readers">
        {w.skip}
      </a>
      <AppShell.Header px="md">
        <Group h="100%" justify="space-between" wrap="nowrap" gap="xs">
          <Group gap="sm" wrap="nowrap">
            <Burger opened={opened} onClick={toggle} hiddenFrom="sm" size="sm" aria-label={w.menu} />
            <UnstyledButton component={Link} to="/" aria-label="Windlass">
              <Group gap={8} wrap="nowrap">
                <img src="./icon.svg" width={24} height={24} alt="" />
                <Text fw={700} visibleFrom="sm">
                  Windlass
                </Text>
              </Group>
            </UnstyledButton>
            <Select
              aria-label={w.project}
              data={who.projects.map((each) => each.name)}
              value={who.project}
              onChange={(value) => value && who.choose(value)}
              allowDeselect={false}
              searchable={who.projects.length > 8}
              size="xs"
              w={{ base: 120, sm: 170 }}
            />
          </Group>
          <Group gap={6} wrap="nowrap">
            <Button
              variant="default"
              size="xs"
              leftSection={<Icon name="search" size={14} />}
              rightSection={<kbd className="mono quiet">⌘K</kbd>}
              onClick={() => setPalette(true)}
              visibleFrom="md"
            >
              {w.search}
            </Button>
            <ActionIcon variant="subtle" color="gray" hiddenFrom="md" onClick={() => setPalette(true)} aria-label={w.search}>
              <Icon name="search" />
            </ActionIcon>
            <Pill />
            <Tooltip label={w.theme}>
              <ActionIcon
                variant="subtle"
                color="gray"
                aria-label={w.theme}
                onClick={() => setColorScheme(scheme === "dark" ? "light" : "dark")}
                visibleFrom="xs"
              >
                <Icon name={scheme === "dark" ? "sun" : "moon"} />
              </ActionIcon>
            </Tooltip>
            <Menu position="bottom-end">
              <Menu.Target>
                <ActionIcon variant="subtle" color="gray" aria-label={w.you(who.user)}>
                  <Icon name="user" />
                </ActionIcon>
              </Menu.Target>
              <Menu.Dropdown>
                <Menu.Label>{w.you(who.user)}</Menu.Label>
                <Menu.Item
                  leftSection={<Icon name="language" />}
                  lang={language === "en" ? "zh" : "en"}
                  onClick={() => choose(language === "en" ? "zh" : "en")}
                >
                  {w.language}
                </Menu.Item>
                <Menu.Item
                  leftSection={<Icon name={scheme === "dark" ? "sun" : "moon"} />}
                  onClick={() => setColorScheme(scheme === "dark" ? "light" : "dark")}
                >
                  {w.theme}
                </Menu.Item>
                <Menu.Item leftSection={<Icon name="settings" />} component={Link} to="/settings">
                  {w.settings}
                </Menu.Item>
                <Menu.Item leftSection={<Icon name="bug" />} onClick={() => setHelp(true)}>
                  {w.keys}
                </Menu.Item>
                <Menu.Divider />
                <Menu.Item leftSection={<Icon name="out" />} onClick={() => void leave()}>
                  {w.logOut}
                </Menu.Item>
              </Menu.Dropdown>
            </Menu>
          </Group>
        </Group>
      </AppShell.Header>

      <AppShell.Navbar p="xs" aria-label={w.menu}>
        <Button
          component={Link}
          to="/jobs/new"
          leftSection={<Icon name="plus" />}
          mb="xs"
          fullWidth
          hidden={!who.may("job.write")}
        >
          {w.newJob}
        </Button>
        <ScrollArea>
          {PLACES.map(({ group, places }) => {
            const open = places.filter((each) => !each.right || who.may(each.right));
            if (!open.length) return null;
            return (
              <div key={group}>
                <Text size="xs" c="dimmed" fw={600} mt="sm" mb={2} px={8}>
                  {w[group]}
                </Text>
                {open.map((each) => (
                  <NavLink
                    key={each.to}
                    component={Link}
                    to={each.to}
                    label={w[each.word]}
                    leftSection={<Icon name={each.word as IconName} />}
                    active={here(each.to)}
                    aria-current={here(each.to) ? "page" : undefined}
                    py={6}
                    style={{ borderRadius: 8 }}
                  />
                ))}
              </div>
            );
          })}
        </ScrollArea>
      </AppShell.Navbar>

      <AppShell.Main id="page" tabIndex={-1}>
        <Outlet />
      </AppShell.Main>
      <Suspense>
        {palette && <Palette close={() => setPalette(false)} />}
        {help && <KeyHelp close={() => setHelp(false)} />}
      </Suspense>
    </AppShell>
  );
}

/** Whether what is shown is what is. */
function Pill(): ReactNode {
  const w = useWords(words);
  const health = useHealth();
  const said = {
    live: [w.live, w.liveHint, "teal"],
    waiting: [w.waiting, w.waitingHint, "orange"],
    paused: [w.paused, w.pausedHint, "gray"],
  }[health] as [string, string, string];
  return (
    <Tooltip label={said[1]}>
      <Badge
        variant="default"
        tt="none"
        fw={500}
        role="status"
        data-health={health}
        leftSection={<span className="dot" style={{ background: `var(--mantine-color-${said[2]}-6)` }} />}
      >
        {said[0]}
      </Badge>
    </Tooltip>
  );
}
