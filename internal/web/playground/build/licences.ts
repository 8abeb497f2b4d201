import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Plugin } from "vite";

interface Package {
  name: string;
  version: string;
  license: string;
  origin: string;
  texts: string[];
}

// Packages whose archive lacks the text, and who of the same holder has it.
const SAME_LICENCE: Record<string, string> = {
  "@graphiql/plugin-doc-explorer": "graphiql",
  "@graphiql/plugin-history": "graphiql",
  "react-compiler-runtime": "react",
  "react-remove-scroll-bar": "react-remove-scroll",
};

const LICENCE_FILE = /^(licen[cs]es?|copying|notices?|copyrightnotice|third-?party-?(notices?|licen[cs]es?))([-.][a-z]+)*$/i;

// What may say something of licences: such a file must be one of the above.
const LEGAL_FILE = /licen[cs]e|copying|copyright|notice|third-?party|patent/i;

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
  const { name, version, license, author, repository } = JSON.parse(readFileSync(join(dir, "package.json"), "utf8"));
  const names = readdirSync(dir);
  const unread = names.filter((file) => LEGAL_FILE.test(file) && !LICENCE_FILE.test(file));
  if (unread.length > 0) throw new Error(`${name}: what are ${unread.join(", ")}? see LICENCE_FILE in licences.ts`);
  const texts = names
    .filter((file) => LICENCE_FILE.test(file))
    .sort()
    .map((file) => readFileSync(join(dir, file), "utf8").replace(/^\ufeff/, "").replace(/\r\n?/g, "\n").trim());
  return { name, version, license, origin: `${author?.name ?? name}, ${repository?.url ?? ""}`, texts };
}

/**
 * Collects the packages that any bundle is made of, workers included, and writes
 * their licences to one file. A package without a licence fails the build.
 */
export class Licences {
  private readonly dirs: Set<string>;
  private readonly inside: string[];

  /** Besides the bundled packages, those of root whose content comes inside another. */
  constructor(root: string, inside: string[]) {
    this.dirs = new Set(inside.map((name) => join(root, "node_modules", name)));
    this.inside = inside;
  }

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
    const { dirs, inside } = this;
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
            const origin = inside.includes(found.name) ? [`It comes inside another package, as it is there. ${found.origin}`] : [];
            return [`${title} (${found.license})`, ...origin, ...texts].join("\n\n");
          });
          const intro = "The Playground is built from the packages below; each keeps its own license, and so does what comes inside one.";
          const source = [intro, ...sections].join(`\n\n${"-".repeat(80)}\n\n`) + "\n";
          this.emitFile({ type: "asset", fileName, source });
        },
      },
    };
  }
}
