import { createGraphiQLFetcher, type Fetcher, type FetcherParams } from "@graphiql/toolkit";
import { Kind, parse } from "graphql";

const meta = document.querySelector<HTMLMetaElement>('meta[name="asof-graphql"]');
const endpoint = new URL(meta?.content || "graphql", document.baseURI);
const socket = new URL(endpoint);
socket.protocol = endpoint.protocol === "https:" ? "wss:" : "ws:";

// An answer that is not JSON (a proxy's error page, say) is shown as a GraphQL
// error that says where it came from, instead of a JSON parse error.
async function fetchJSON(input: RequestInfo | URL, init?: RequestInit): Promise<Response> {
  const response = await fetch(input, init);
  if (/[/+]json\b/.test(response.headers.get("content-type") ?? "")) return response;
  const text = (await response.text()).trim().slice(0, 1000);
  const message = `${response.status} ${response.statusText}: ${text || "the answer is empty"}`;
  return new Response(JSON.stringify({ errors: [{ message }] }), { status: response.status });
}

const send = createGraphiQLFetcher({
  url: endpoint.href,
  subscriptionUrl: socket.href,
  enableIncrementalDelivery: false,
  fetch: fetchJSON,
});

// For a moment after another tab was opened, GraphiQL still has the name of the
// operation in the one before. A name that the document lacks is left out where
// there is one operation only, so that who clicks fast is answered.
function withKnownName(params: FetcherParams): FetcherParams {
  if (!params.operationName) return params;
  try {
    const operations = parse(params.query).definitions.filter((d) => d.kind === Kind.OPERATION_DEFINITION);
    const known = operations.some((operation) => operation.name?.value === params.operationName);
    if (!known && operations.length === 1) return { ...params, operationName: operations[0].name?.value };
  } catch {
    // The server says better what is wrong with the document.
  }
  return params;
}

/** Sends operations to the server. */
export const fetcher: Fetcher = (params, options) => send(withKnownName(params), options);
