// The ready queries: one file of src/tabs each, in the order of the file names.
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

function parse(path: string): Example {
  const query = queries[path].trim() + "\n";
  const comment: string[] = [];
  for (const line of query.split("\n")) {
    if (!line.startsWith("#")) break;
    comment.push(line.slice(1).trim());
  }
  const [title, ...rest] = comment.join(" ").split(": ");
  const about = rest.join(": ");
  const values = variables[path.replace(/\.graphql$/, ".json")] ?? "";
  return { title, about: about.charAt(0).toUpperCase() + about.slice(1), query, variables: values.trim() };
}

/** All ready queries, in the order in which they are shown. */
export const examples: Example[] = Object.keys(queries).sort().map(parse);

/** The headers that a new tab starts with: who signs the changes. */
export const defaultHeaders = JSON.stringify({ "X-Actor": "visitor" }, null, 2);
