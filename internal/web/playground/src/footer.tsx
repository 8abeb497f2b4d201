import { useGraphiQL } from "@graphiql/react";
import { useMemo } from "react";

// The instant of an answer, as the response editor has it.
function instantOf(response: string | null | undefined): string | undefined {
  try {
    const { extensions } = JSON.parse(response ?? "{}") as { extensions?: { asOf?: unknown } };
    return typeof extensions?.asOf === "string" ? extensions.asOf : undefined;
  } catch {
    return undefined; // no answer, or not one of the API's
  }
}

/** The line below the answer: the instant of the open tab's, and the server's other pages. */
export function Footer() {
  const response = useGraphiQL((state) => state.tabs[state.activeTabIndex]?.response);
  const instant = useMemo(() => instantOf(response), [response]);
  return (
    <div className="asof-footer">
      {instant ? (
        <span title="What has no time of its own in the request is as of this instant, and the same for ever when it is asked for with this asOf. Pages after a cursor are as of their first page.">
          request as of <time dateTime={instant}>{instant}</time>
        </span>
      ) : (
        <span />
      )}
      <nav aria-label="Server">
        <a href="readyz">Health</a>
        <a href="metrics">Metrics</a>
        <a href="THIRD-PARTY-LICENSES.txt">Licenses</a>
      </nav>
    </div>
  );
}
