// Monaco's public API always links its side-by-side viewers. The Playground never
// opens one; these stand in for them (see vite.config.ts).
const message = "the Playground is built without Monaco's diff viewers";

export class DiffEditorWidget {
  constructor() {
    throw new Error(message);
  }
}

export class MultiDiffEditorWidget {
  constructor() {
    throw new Error(message);
  }
}
