import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";
import { compress } from "./build/compress.ts";
import { Licences } from "./build/licences.ts";
import { stamp } from "./build/stamp.ts";

const local = (path: string) => fileURLToPath(new URL(path, import.meta.url));
// Monaco brings its font of icons along without naming where it comes from.
const licences = new Licences(local("."), ["@vscode/codicons"]);

export default defineConfig({
  // Relative URLs: the page works below any path of any host.
  base: "./",
  publicDir: false,
  resolve: {
    alias: [
      { find: /^monaco-editor\/esm\/vs\/editor\/edcore\.main\.js$/, replacement: local("src/monaco.ts") },
      { find: /^.*\/widget\/diffEditor\/diffEditorWidget\.js$/, replacement: local("src/left-out.ts") },
      { find: /^.*\/widget\/multiDiffEditor\/multiDiffEditorWidget\.js$/, replacement: local("src/left-out.ts") },
      // Old names of the same files, which would be bundled a second time.
      { find: "prettier/parser-graphql", replacement: "prettier/plugins/graphql" },
      { find: "prettier/parser-babel", replacement: "prettier/plugins/babel" },
    ],
  },
  plugins: [
    licences.collect(),
    licences.write("THIRD-PARTY-LICENSES.txt"),
    stamp(local("."), "sources.txt"),
    compress("sources.txt"),
  ],
  worker: { format: "es", plugins: () => [licences.collect()] },
  build: {
    target: "es2022",
    // The editor is one chunk of about 2.5 MB (600 kB gzip).
    chunkSizeWarningLimit: 3000,
    rollupOptions: {
      onwarn(warning, warn) {
        // "use client" means nothing in a page without a server side.
        if (warning.code !== "MODULE_LEVEL_DIRECTIVE") warn(warning);
      },
    },
  },
});
