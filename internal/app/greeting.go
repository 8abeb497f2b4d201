package app

// firstQuery shows what a document was and is, and who changed it. The verb is
// the server's base URL.
const firstQuery = `
A first query, for the Playground or as it is here: the licence of Lanternfish
in the summer of 2025 and now, and who changed it.

  curl -sG %s/graphql --data-urlencode 'query={
    summer: project(key: "lanternfish", asOf: "2025-07-01T00:00:00Z") { version licenses { name } }
    now: project(key: "lanternfish") { version licenses { name }
      blame(fields: [licenses]) { changedBy { id } changedAt message } }
  }'
`
