import { GraphiQL } from "graphiql";
import { DOC_EXPLORER_PLUGIN } from "@graphiql/plugin-doc-explorer";
import { HISTORY_PLUGIN } from "@graphiql/plugin-history";
import { pick, useGraphiQL, useGraphiQLActions } from "@graphiql/react";
import { useEffect } from "react";
import { defaultHeaders, examples } from "./examples";
import { EXAMPLES_PLUGIN } from "./examples-pane";
import { fetcher } from "./fetcher";
import { isFirstVisit } from "./first-visit";
import { Footer } from "./footer";
import { hasNoSchema, NO_SCHEMA_PLUGIN } from "./no-schema";
import { TabStrip } from "./tab-strip";
import { VariablesCheck } from "./variables-check";

const plugins = [EXAMPLES_PLUGIN, HISTORY_PLUGIN];

// Tabs of a first visit. A visitor who has been here before keeps the tabs that
// the browser stored.
const defaultTabs = examples.map(({ query, variables }) => ({
  query,
  variables,
  headers: defaultHeaders,
}));

// The editors' font is smaller than GraphiQL's, and long lines are wrapped.
function EditorOptions() {
  const editors = useGraphiQL(pick("queryEditor", "variableEditor", "headerEditor", "responseEditor"));
  useEffect(() => {
    for (const editor of Object.values(editors)) {
      editor?.updateOptions({ fontSize: 13, wordWrap: "on", wrappingIndent: "indent" });
    }
  }, [editors]);
  return null;
}

// What the variables editor takes for the scalars that GraphQL does not know.
const customScalarSchemas = {
  DateTime: { type: "string" },
  Date: { type: "string" },
  Decimal: { type: ["string", "number"] },
  JSON: {},
};

// The page follows the system's theme by media query; the editors have to be told.
function FollowSystemTheme() {
  const theme = useGraphiQL((state) => state.theme);
  const { setTheme } = useGraphiQLActions();
  useEffect(() => {
    if (theme) return;
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const follow = () => setTheme(null);
    dark.addEventListener("change", follow);
    return () => dark.removeEventListener("change", follow);
  }, [theme, setTheme]);
  return null;
}

/** The Playground: GraphiQL with ready queries and the instant of each answer. */
export function App() {
  return (
    <GraphiQL
      fetcher={fetcher}
      plugins={plugins}
      // Where the server does not tell its schema it is not asked for it.
      schema={hasNoSchema ? null : undefined}
      referencePlugin={hasNoSchema ? NO_SCHEMA_PLUGIN : DOC_EXPLORER_PLUGIN}
      className={hasNoSchema ? "asof-no-schema" : undefined}
      // The schema's documentation is open at first.
      visiblePlugin={isFirstVisit ? DOC_EXPLORER_PLUGIN.title : undefined}
      defaultTabs={defaultTabs}
      initialVariables={isFirstVisit ? examples[0].variables : undefined}
      defaultHeaders={defaultHeaders}
      defaultQuery=""
      defaultEditorToolsVisibility="variables"
      customScalarSchemas={customScalarSchemas}
      inputValueDeprecation
      schemaDescription
    >
      <GraphiQL.Logo>
        <span className="asof-logo">asof</span>
      </GraphiQL.Logo>
      <GraphiQL.Footer>
        <Footer />
      </GraphiQL.Footer>
      <EditorOptions />
      <FollowSystemTheme />
      <TabStrip />
      <VariablesCheck />
    </GraphiQL>
  );
}
