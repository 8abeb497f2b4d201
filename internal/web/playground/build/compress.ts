import { createHash } from "node:crypto";
import { appendFileSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, relative, resolve } from "node:path";
import { gzipSync } from "node:zlib";
import type { Plugin } from "vite";

/**
 * Replaces every built file with its gzip form, the only one that is embedded.
 * Before, it adds a line to stampName for each other file: the SHA-256 of its
 * content, two spaces, its path. So a test can tell that none was changed since.
 */
export function compress(stampName: string): Plugin {
  let outDir = "";
  return {
    name: "compress",
    apply: "build",
    configResolved(config) {
      outDir = resolve(config.root, config.build.outDir);
    },
    writeBundle() {
      const paths = readdirSync(outDir, { recursive: true, withFileTypes: true })
        .filter((entry) => entry.isFile() && !entry.name.endsWith(".gz"))
        .map((entry) => relative(outDir, join(entry.parentPath, entry.name)).replaceAll("\\", "/"))
        .sort();
      for (const path of paths) {
        if (path === stampName) continue;
        const hash = createHash("sha256").update(readFileSync(join(outDir, path))).digest("hex");
        appendFileSync(join(outDir, stampName), `${hash}  ${path}\n`);
      }
      for (const path of paths) {
        const file = join(outDir, path);
        writeFileSync(`${file}.gz`, gzipSync(readFileSync(file), { level: 9 }));
        rmSync(file);
      }
    },
  };
}
