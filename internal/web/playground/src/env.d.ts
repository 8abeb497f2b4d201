/// <reference types="vite/client" />

interface Window {
  MonacoEnvironment?: { getWorker(id: string, label: string): Worker };
}

declare module "monaco-editor/esm/vs/editor/editor.worker.js" {
  export function initialize(create: (context: never, createData: never) => object): void;
}
