import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join, relative } from "node:path";
import type { Plugin } from "vite";

// What the built files are made from: all files of the project but these.
const LEFT_OUT = new Set(["dist", "node_modules"]);

function files(dir: string): string[] {
  return readdirSync(dir, { withFileTypes: true }).flatMap((entry) => {
    const path = join(dir, entry.name);
    if (LEFT_OUT.has(entry.name)) return [];
    return entry.isDirectory() ? files(path) : [path];
  });
}

/**
 * Writes fileName with the SHA-256 of the sources, so that a test can tell
 * without npm whether the built files are current: for each file, in the order
 * of the paths, its path, a line feed, its length in bytes, a line feed, its bytes.
 * What was built of them follows when it is written (compress.ts).
 */
export function stamp(root: string, fileName: string): Plugin {
  return {
    name: "stamp",
    apply: "build",
    generateBundle() {
      const hash = createHash("sha256");
      const paths = files(root).map((path) => relative(root, path).replaceAll("\\", "/"));
      for (const path of paths.sort()) {
        const content = readFileSync(join(root, path));
        hash.update(`${path}\n${content.length}\n`).update(content);
      }
      this.emitFile({ type: "asset", fileName, source: hash.digest("hex") + "\n" });
    },
  };
}
