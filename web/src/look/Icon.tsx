/** Line icons of our own, 24 x 24, in the colour of the text. */
import type { ReactNode } from "react";

const PATHS = {
  home: "M4 11l8-7 8 7v9h-6v-6h-4v6H4z",
  jobs: "M4 6h16M4 12h16M4 18h10",
  compare: "M4 19l5-7 4 4 7-10M4 5v14h16",
  studies: "M5 4v16M12 4v16M19 4v16M5 9l7 6 7-9",
  models: "M12 3l8 4.5v9L12 21l-8-4.5v-9zM4 7.5l8 4.5 8-4.5M12 12v9",
  nodes: "M4 5h16v6H4zM4 13h16v6H4zM7 8h.01M7 16h.01",
  queues: "M4 6h10M4 12h10M4 18h10M18 5v14m0 0l-3-3m3 3l3-3",
  usage: "M5 20V10M12 20V4M19 20v-7",
  audit: "M7 3h8l4 4v14H7zM10 12h6M10 16h6",
  admin: "M12 3l8 3v6c0 5-4 8-8 9-4-1-8-4-8-9V6z",
  settings: "M12 9a3 3 0 100 6 3 3 0 000-6zM12 3v3m0 12v3M3 12h3m12 0h3M5.6 5.6l2.1 2.1m8.6 8.6l2.1 2.1m0-12.8l-2.1 2.1M7.7 16.3l-2.1 2.1",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  check: "M5 13l4 4L19 7",
  close: "M6 6l12 12M18 6L6 18",
  search: "M11 4a7 7 0 100 14 7 7 0 000-14zM16 16l5 5",
  sun: "M12 8a4 4 0 100 8 4 4 0 000-8zM12 2v3m0 14v3M2 12h3m14 0h3M5 5l2 2m10 10l2 2M19 5l-2 2M7 17l-2 2",
  moon: "M20 14A8 8 0 019 4a8 8 0 1011 10z",
  language: "M4 5h9M8 3v2c0 5-2 8-5 10m2-6c1 3 3 5 6 6m3 6l4-11 4 11m-1.5-4h-5",
  plus: "M12 5v14M5 12h14",
  stop: "M6 6h12v12H6z",
  play: "M7 5l12 7-12 7z",
  again: "M4 12a8 8 0 0114-5l2 2M20 4v5h-5M20 12a8 8 0 01-14 5l-2-2M4 20v-5h5",
  download: "M12 4v11m0 0l-4-4m4 4l4-4M5 20h14",
  trash: "M5 7h14M9 7V4h6v3M7 7l1 13h8l1-13",
  menu: "M4 6h16M4 12h16M4 18h16",
  down: "M6 9l6 6 6-6",
  right: "M9 6l6 6-6 6",
  up: "M6 15l6-6 6 6",
  out: "M14 4h6v6M20 4l-9 9M18 14v6H4V6h6",
  filter: "M4 5h16l-6 8v6l-4-2v-4z",
  columns: "M4 5h16v14H4zM10 5v14M15 5v14",
  pin: "M12 21v-7M8 3h8l-1 6 3 5H6l3-5z",
  star: "M12 4l2.5 5.2 5.5.8-4 4 1 5.6-5-2.7-5 2.7 1-5.6-4-4 5.5-.8z",
  bug: "M8 8h8v7a4 4 0 01-8 0zM9 8a3 3 0 016 0M4 12h4m8 0h4M5 18l3-2m8 0l3 2M6 6l2 2m8 0l2-2",
  user: "M12 4a4 4 0 100 8 4 4 0 000-8zM4 21c1-5 4-7 8-7s7 2 8 7",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }): ReactNode {
  return (
    <svg
      width={size}
      height={size}
      viewBox="0 0 24 24"
      fill="none"
      stroke="currentColor"
      strokeWidth="1.9"
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden="true"
      focusable="false"
    >
      <path d={PATHS[name]} />
    </svg>
  );
}
