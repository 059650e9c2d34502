/** Colours of what is drawn on canvas, read from the page as it is drawn: both themes hold. */
import { useComputedColorScheme } from "@mantine/core";
import { useCallback, useLayoutEffect, useRef, useState, type RefObject } from "react";

import type { Theme } from "../look/colours";

export interface Ink {
  paper: string;
  text: string;
  quiet: string;
  grid: string;
  font: string;
}

export function inkOf(element: Element): Ink {
  const style = getComputedStyle(element);
  const of = (name: string, otherwise: string): string => style.getPropertyValue(name).trim() || otherwise;
  return {
    paper: of("--mantine-color-body", "#ffffff"),
    text: of("--mantine-color-text", "#000000"),
    quiet: of("--mantine-color-dimmed", "#5b6570"),
    grid: of("--chart-grid", "#8883"),
    font: style.fontFamily,
  };
}

/** Calls when the page changed its theme, and with it its colours. */
export function onRepaint(change: () => void): () => void {
  const watch = new MutationObserver(change);
  watch.observe(document.documentElement, { attributeFilter: ["data-mantine-color-scheme"] });
  return () => watch.disconnect();
}

/** The theme that is shown; who draws on canvas draws anew when it changes. */
export function useTheme(): Theme {
  return useComputedColorScheme("light", { getInitialValueInEffect: false });
}

/** Width of an element in CSS pixels, as it changes; 0 until it is known. */
export function useWidth<T extends HTMLElement>(): [RefObject<T | null>, number] {
  const element = useRef<T>(null);
  const [width, setWidth] = useState(0);
  const measure = useCallback(() => {
    if (element.current) setWidth(Math.floor(element.current.clientWidth));
  }, []);
  useLayoutEffect(() => {
    measure();
    const watch = new ResizeObserver(measure);
    if (element.current) watch.observe(element.current);
    return () => watch.disconnect();
  }, [measure]);
  return [element, width];
}
