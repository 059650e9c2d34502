/** How long 50 curves of 10,000 points take to draw. No part of the dashboard: the benchmark builds
 * this page (`npx vite build src/charts/measure --outDir DIR`), opens it, and reads what is in
 * `#measured`: milliseconds from the first look at the points until the pixels are there.
 * `?lines=`, `points=`, `smoothing=` and `times=` change what is drawn. */
import "@mantine/core/styles.css";

import { MantineProvider } from "@mantine/core";
import { flushSync } from "react-dom";
import { createRoot } from "react-dom/client";

import { Languages } from "../../i18n";
import { colourOf } from "../../look/colours";
import { Curves } from "../Curves";
import type { Line } from "../line";

const asked = new URLSearchParams(location.search);
const number = (name: string, otherwise: number): number => Number(asked.get(name) ?? otherwise);

function curve(at: number, points: number): Line {
  const id = `job-${at}`;
  let seed = at + 1;
  const noise = (): number => (seed = (seed * 16_807) % 2_147_483_647) / 2_147_483_647;
  const x = Float64Array.from({ length: points }, (_, n) => n);
  const y = x.map((n) => 2 * Math.exp(-n / (points * (0.1 + at / 100))) + 0.3 * noise());
  return { id, label: id, colour: colourOf(id, "light"), x, y };
}

/** A curve's way onto the screen: made, laid out, drawn, and read back so that it is really there. */
async function once(): Promise<number> {
  const lines = Array.from({ length: number("lines", 50) }, (_, at) => curve(at, number("points", 10_000)));
  const root = createRoot(document.getElementById("root") as HTMLElement);
  const start = performance.now();
  flushSync(() =>
    root.render(
      <MantineProvider>
        <Languages>
          <Curves title="loss" lines={lines} smoothing={number("smoothing", 0)} height={400} />
        </Languages>
      </MantineProvider>,
    ),
  );
  await Promise.resolve(); // uPlot draws in a microtask
  const canvas = document.querySelector("canvas") as HTMLCanvasElement;
  canvas.getContext("2d")?.getImageData(0, 0, 1, 1);
  const took = performance.now() - start;
  root.unmount();
  return took;
}

const measured: number[] = [];
for (let times = 0; times < number("times", 5); times++) {
  measured.push(await once());
  await new Promise((then) => setTimeout(then, 20));
}
const said = document.createElement("pre");
said.id = "measured";
said.textContent = JSON.stringify(measured);
document.body.append(said);
