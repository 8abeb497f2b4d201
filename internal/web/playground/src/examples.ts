// The ready queries of the demo, or the one that the server has put in their place,
// where its schema is another. Those of the demo are one file of src/tabs each, in the order of the file names.
// The comment at the top is "# Title: what it shows." on two lines or more;
// NAME.json beside NAME.graphql holds the variables.

/** A ready query. */
export interface Example {
  title: string;
  about: string;
  query: string;
  variables: string;
}

const queries = import.meta.glob<string>("./tabs/*.graphql", {
  query: "?raw",
  import: "default",
  eager: true,
});
const variables = import.meta.glob<string>("./tabs/*.json", {
  query: "?raw",
  import: "default",
  eager: true,
});

function parse(text: string, values: string): Example {
  const query = text.trim() + "\n";
  const comment: string[] = [];
  for (const line of query.split("\n")) {
    if (!line.startsWith("#")) break;
    comment.push(line.slice(1).trim());
  }
  const [title, ...rest] = comment.join(" ").split(": ");
  const about = rest.join(": ");
  return { title, about: about.charAt(0).toUpperCase() + about.slice(1), query, variables: values.trim() };
}

function ofDemo(path: string): Example {
  return parse(queries[path], variables[path.replace(/\.graphql$/, ".json")] ?? "");
}

function ofServer(): Example | undefined {
  const meta = document.querySelector<HTMLMetaElement>('meta[name="asof-example"]');
  if (!meta?.content) return undefined;
  const { query, variables } = JSON.parse(meta.content) as { query: string; variables: object };
  return parse(query, JSON.stringify(variables, null, 2));
}

const own = ofServer();

/** Whether the ready queries are those of the demo. */
export const isDemo = own === undefined;

/** All ready queries, in the order in which they are shown. */
export const examples: Example[] = own ? [own] : Object.keys(queries).sort().map(ofDemo);

/** The headers that a new tab starts with: who signs the changes. */
export const defaultHeaders = JSON.stringify({ "X-Actor": "visitor" }, null, 2);
