// Monaco's language services, all in one file because they share most of their
// code; the name of the worker says which one it is to be. The JSON worker, which
// sets self.onmessage when it is loaded, also does the editor's common work.
import "monaco-editor/esm/vs/language/json/json.worker.js";
import { initialize } from "monaco-editor/esm/vs/editor/editor.worker.js";
import { GraphQLWorker } from "monaco-graphql/esm/GraphQLWorker.js";

if (self.name === "graphql") {
  self.onmessage = () => {
    initialize((context: never, createData: never) => new GraphQLWorker(context, createData));
  };
}
