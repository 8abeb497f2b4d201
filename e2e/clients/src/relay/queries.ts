// What Relay's compiler reads; the app imports what it writes.
import { graphql } from 'relay-runtime'

graphql`
  query queriesListQuery($count: Int!, $cursor: String) {
    ...queriesList_tags
  }
`
graphql`
  fragment queriesList_tags on Query {
    tags(first: $count, after: $cursor) @connection(key: "queriesList_tags") {
      edges { node { id name } }
    }
  }
`
graphql`query queriesAtQuery($at: DateTime) { project(key: "hearth", asOf: $at) { id tags(asOf: $at) { id name } } }`
graphql`query queriesTagQuery($key: ID!) { tag(key: $key) { id version name description versionInfo { author { id } } } }`
graphql`query queriesReleaseQuery { project(key: "hearth") { currentRelease { tag } versionInfo { number } } }`
graphql`query queriesReleaseDayQuery { project(key: "hearth") { currentRelease { publishedAt } versionInfo { author { id } } } }`
graphql`
  mutation queriesSaveMutation($input: UpdateTagInput!) {
    updateTag(input: $input) {
      __typename
      ... on UpdateTagSuccess { tag { id version name description } }
      ... on TagConflict { overlappingPaths changesSince { newValue changedBy { id } } current { id version name description } }
    }
  }
`
graphql`
  mutation queriesDeleteMutation($input: DeleteTagInput!, $connections: [ID!]!) {
    deleteTag(input: $input) { ... on DeleteTagSuccess { edge: deletedId @deleteEdge(connections: $connections) deletedId @deleteRecord } }
  }
`
