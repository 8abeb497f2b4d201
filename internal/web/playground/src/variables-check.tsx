import { useGraphiQL, useMonaco } from "@graphiql/react";
import { useEffect } from "react";

/**
 * Keeps the variables of a tab from being checked against the operation of the
 * tab before: after a change of tabs the schema of the old variables is dropped,
 * and Monaco makes that of the new ones when it has read the new operation.
 */
export function VariablesCheck() {
  const tab = useGraphiQL((state) => state.tabs[state.activeTabIndex]?.id);
  const monaco = useMonaco((state) => state.monaco);
  useEffect(() => {
    const json = monaco?.languages.json.jsonDefaults;
    if (json?.diagnosticsOptions.schemas?.length) {
      json.setDiagnosticsOptions({ ...json.diagnosticsOptions, schemas: [] });
    }
  }, [tab, monaco]);
  return null;
}
