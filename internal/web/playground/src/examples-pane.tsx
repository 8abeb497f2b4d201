import { pick, useGraphiQL, useGraphiQLActions, type GraphiQLPlugin } from "@graphiql/react";
import { defaultHeaders, examples, isDemo, type Example } from "./examples";

function useOpenExample(): (example: Example) => void {
  const { addTab, changeTab } = useGraphiQLActions();
  const { tabs, queryEditor, variableEditor, headerEditor } = useGraphiQL(
    pick("tabs", "queryEditor", "variableEditor", "headerEditor"),
  );
  return (example) => {
    const open = tabs.findIndex((tab) => tab.query?.trim() === example.query.trim());
    if (open >= 0) {
      changeTab(open);
      return;
    }
    addTab();
    queryEditor?.setValue(example.query);
    variableEditor?.setValue(example.variables);
    headerEditor?.setValue(defaultHeaders);
    queryEditor?.focus();
  };
}

function ExamplesPane() {
  const open = useOpenExample();
  return (
    <section aria-label="Examples" className="asof-examples">
      <h2>Examples</h2>
      <p>Each opens in a tab, ready to run{isDemo && " against the demo"}.</p>
      <ol>
        {examples.map((example) => (
          <li key={example.title}>
            <button type="button" onClick={() => open(example)}>
              <strong>{example.title}</strong>
              <span>{example.about}</span>
            </button>
          </li>
        ))}
      </ol>
    </section>
  );
}

function ExamplesIcon() {
  return (
    <svg viewBox="0 0 24 24" fill="none" stroke="currentColor" strokeWidth="1.5" strokeLinecap="round" strokeLinejoin="round">
      <path d="M9 6h11M9 12h11M9 18h11" />
      <path d="M4 4.5 5.5 6 4 7.5M4 10.5 5.5 12 4 13.5M4 16.5 5.5 18 4 19.5" />
    </svg>
  );
}

/** The pane that lists the ready queries, so that a closed tab can be had again. */
export const EXAMPLES_PLUGIN: GraphiQLPlugin = {
  title: "Examples",
  icon: ExamplesIcon,
  content: ExamplesPane,
};
