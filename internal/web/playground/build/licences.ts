import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Plugin } from "vite";

interface Package {
  name: string;
  version: string;
  license: string;
  texts: string[];
}

// Packages whose archive lacks the text, and who of the same holder has it.
const SAME_LICENCE: Record<string, string> = {
  "@graphiql/plugin-doc-explorer": "graphiql",
  "@graphiql/plugin-history": "graphiql",
  "react-compiler-runtime": "react",
  "react-remove-scroll-bar": "react-remove-scroll",
};

const LICENCE_FILE = /^(licen[cs]e|copying|notice|thirdpartynotices)([-.][a-z]+)*$/i;

function packageOf(moduleId: string): string | undefined {
  const file = moduleId.split("?")[0].replace(/^\0/, "");
  if (!file.includes("/node_modules/")) return undefined;
  let dir = dirname(file);
  while (dir.includes("/node_modules/")) {
    const manifest = join(dir, "package.json");
    // Nested package.json files without a name only set the module type.
    if (existsSync(manifest) && JSON.parse(readFileSync(manifest, "utf8")).version) return dir;
    dir = dirname(dir);
  }
  return undefined;
}

function read(dir: string): Package {
  const { name, version, license } = JSON.parse(readFileSync(join(dir, "package.json"), "utf8"));
  const texts = readdirSync(dir)
    .filter((file) => LICENCE_FILE.test(file))
    .sort()
    .map((file) => readFileSync(join(dir, file), "utf8").replace(/\r\n?/g, "\n").trim());
  return { name, version, license, texts };
}

/**
 * Collects the packages that any bundle is made of, workers included, and writes
 * their licences to one file. A package without a licence fails the build.
 */
export class Licences {
  private readonly dirs = new Set<string>();

  /** The plugin that notes the modules of one bundle. */
  collect(): Plugin {
    const dirs = this.dirs;
    return {
      name: "licences:collect",
      generateBundle() {
        for (const id of this.getModuleIds()) {
          const dir = packageOf(id);
          if (dir) dirs.add(dir);
        }
      },
    };
  }

  /** The plugin that writes fileName; it belongs to the main bundle, which ends last. */
  write(fileName: string): Plugin {
    const dirs = this.dirs;
    return {
      name: "licences:write",
      generateBundle: {
        order: "post",
        handler() {
          const packages = new Map<string, Package>();
          for (const dir of dirs) {
            const found = read(dir);
            packages.set(`${found.name} ${found.version}`, found);
          }
          const sections = [...packages].sort(([a], [b]) => (a < b ? -1 : 1)).map(([title, found]) => {
            const holder = [...packages.values()].find((p) => p.name === SAME_LICENCE[found.name]);
            const texts = found.texts.length > 0 ? found.texts : (holder?.texts ?? []);
            if (!found.license || texts.length === 0) this.error(`${title} comes without a license`);
            return [`${title} (${found.license})`, ...texts].join("\n\n");
          });
          const intro = "The Playground is built from the packages below; each keeps its own license.";
          const source = [intro, ...sections].join(`\n\n${"-".repeat(80)}\n\n`) + "\n";
          this.emitFile({ type: "asset", fileName, source });
        },
      },
    };
  }
}
