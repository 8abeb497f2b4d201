import { DOC_EXPLORER_PLUGIN } from "@graphiql/plugin-doc-explorer";
import type { GraphiQLPlugin } from "@graphiql/react";

/** Whether the server was told not to answer what asks for its schema. */
export const hasNoSchema =
  document.querySelector<HTMLMetaElement>('meta[name="asof-introspection"]')?.content === "off";

function NoSchemaPane() {
  return (
    <section aria-label="Documentation" className="asof-no-schema-pane">
      <h2>No documentation here</h2>
      <p>
        Introspection is turned off on this server (<code>--no-introspection</code>), so that it does not tell its
        schema. There is nothing to browse, and the editor neither completes nor checks names.
      </p>
      <p>Queries are answered all the same. The pane Examples has some that are ready to run.</p>
    </section>
  );
}

/** The pane in place of the documentation, which says why there is none. */
export const NO_SCHEMA_PLUGIN: GraphiQLPlugin = {
  title: DOC_EXPLORER_PLUGIN.title,
  icon: DOC_EXPLORER_PLUGIN.icon,
  content: NoSchemaPane,
};
