import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin, type Rolldown } from "vite";

const OUT = "../src/windlass/_ui";

/** `.gz` and `.br` beside each file: the server sends them as they are. */
function compressed(): Plugin {
  let out = "";
  return {
    name: "compressed",
    apply: "build",
    configResolved(config) {
      out = resolve(config.root, config.build.outDir);
    },
    closeBundle() {
      const walk = (folder: string): void => {
        for (const name of readdirSync(folder)) {
          const path = join(folder, name);
          if (statSync(path).isDirectory()) walk(path);
          else if (/\.(js|css|svg)$/.test(name)) {
            const bytes = readFileSync(path);
            const quality = { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY };
            writeFileSync(`${path}.gz`, gzipSync(bytes, { level: 9 }));
            writeFileSync(`${path}.br`, brotliCompressSync(bytes, { params: quality }));
          }
        }
      };
      walk(out);
    },
  };
}

/** `pages.json`: the scripts of each page by its address, as the router has it. The server names
 * them in the HTML of that page, so they are on their way before the first script has run. */
function foreseen(): Plugin {
  return {
    name: "foreseen",
    apply: "build",
    generateBundle(_, bundle) {
      const chunks = new Map<string, Rolldown.OutputChunk>();
      for (const each of Object.values(bundle)) if (each.type === "chunk") chunks.set(each.fileName, each);
      const all = (name: string, found = new Set<string>()): Set<string> => {
        if (!found.has(name)) {
          found.add(name);
          chunks.get(name)?.imports.forEach((each) => all(each, found));
        }
        return found;
      };
      const entry = [...chunks.values()].find((each) => each.isEntry);
      if (!entry) return;
      const always = all(entry.fileName);
      const router = readFileSync(join(import.meta.dirname, "src/router.tsx"), "utf-8");
      const pages: Record<string, string[]> = {};
      for (const [, address, module] of router.matchAll(/page\("([^"]+)", \(\) => import\("\.\/([^"]+)"\)\)/g)) {
        const source = join(import.meta.dirname, "src", `${module}.tsx`);
        const chunk = [...chunks.values()].find((each) => each.facadeModuleId === source);
        if (!address || !chunk) throw new Error(`router.tsx: no chunk of ${module}`);
        pages[address] = [...all(chunk.fileName)].filter((each) => !always.has(each));
      }
      this.emitFile({ type: "asset", fileName: "pages.json", source: JSON.stringify(pages) });
    },
  };
}

/** What the first script needs is one file, what several pages share another; the rest goes with
 * its page. Left alone the build makes a file of every small part, and a browser asks for six at
 * a time. What is heavy and seldom stays apart. */
const HEAVY = /\/(uplot|yaml|react-number-format|NumberInput|MultiSelect)\/|\/src\/(charts\/([Cc]urve|Bars)|models|jobs\/job)/;
const groups = [
  { name: "index", test: /\/src\/main\.tsx$/, priority: 2, includeDependenciesRecursively: true },
  {
    name: "shared",
    test: (id: string) => !HEAVY.test(id),
    minShareCount: 3,
    priority: 1,
    includeDependenciesRecursively: false,
  },
];

export default defineConfig({
  base: "./", // the server's own path is in <base>, set as the page is served
  plugins: [react(), foreseen(), compressed()],
  build: {
    outDir: OUT,
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    cssCodeSplit: false,
    rolldownOptions: { output: { codeSplitting: { groups } } },
  },
  server: { proxy: { "/api": "http://127.0.0.1:7400", "/login": "http://127.0.0.1:7400" } },
});
