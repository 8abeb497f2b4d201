import { createGraphiQLFetcher, type Fetcher } from "@graphiql/toolkit";

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

function instantOf(answer: unknown): string | undefined {
  const { extensions } = (answer ?? {}) as { extensions?: { asOf?: unknown } };
  return typeof extensions?.asOf === "string" ? extensions.asOf : undefined;
}

/**
 * Sends operations to the server; onInstant is told the instant of each answer
 * (extensions.asOf), the schema's introspection excepted.
 */
export function createFetcher(onInstant: (instant: string | undefined) => void): Fetcher {
  return async (params, options) => {
    const answer = await send(params, options);
    if (params.operationName !== "IntrospectionQuery") onInstant(instantOf(answer));
    return answer as never;
  };
}
