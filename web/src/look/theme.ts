import { createTheme, type MantineColorsTuple } from "@mantine/core";

const SEA: MantineColorsTuple = [
  "#e6f7f6", "#d2ebea", "#a6d7d5", "#75c2bf", "#4eb1ac", "#35a6a1", "#1d8a86", "#0b6e6e", "#075c5c", "#004949",
]; // prettier-ignore

// The greys of the dark theme, with a breath of blue as the paper has it: text, dimmed, …, border,
// hover, panel, paper, and what lies below.
const NIGHT: MantineColorsTuple = [
  "#d5dbe1", "#b8c1ca", "#9aa5b1", "#6f7a86", "#343c45", "#262c33", "#1b2025", "#14171a", "#101316", "#0b0d0f",
]; // prettier-ignore

export const theme = createTheme({
  primaryColor: "sea",
  primaryShade: { light: 7, dark: 7 }, // white on it is 6:1 in both
  colors: { sea: SEA, dark: NIGHT },
  autoContrast: true,
  defaultRadius: "md",
  fontFamily:
    "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'Noto Sans CJK SC', 'PingFang SC', 'Microsoft YaHei', sans-serif",
  fontFamilyMonospace: "ui-monospace, 'SF Mono', 'Cascadia Code', 'DejaVu Sans Mono', Menlo, monospace",
  headings: { fontWeight: "650", sizes: { h1: { fontSize: "1.45rem" }, h2: { fontSize: "1.1rem" }, h3: { fontSize: "1rem" } } },
  components: {
    Button: { defaultProps: { size: "sm" } },
    Tooltip: { defaultProps: { openDelay: 300, withArrow: true } },
  },
});
