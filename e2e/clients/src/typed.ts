// An app with the types and the list of documents that graphql-codegen writes; it sends their ids.
import { graphql } from '../generated/gql'
import type { TypedDocumentString } from '../generated/gql/graphql'
import { check, url } from './check'

const Dashboard = graphql(`
  query Dashboard($at: DateTime) {
    project(key: "hearth", asOf: $at) { id version currentRelease { publishedAt } versionInfo { recordedAt author { id } } tags(asOf: $at) { name } }
  }
`)
const Rename = graphql(`
  mutation Rename($input: UpdateTagInput!) {
    updateTag(input: $input) {
      __typename
      ... on UpdateTagSuccess { tag { version name } }
      ... on TagConflict { actualVersion changesSince { path newValue } }
    }
  }
`)

async function send<Result, Variables>(document: TypedDocumentString<Result, Variables>, variables: Variables): Promise<Result> {
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    body: JSON.stringify({ documentId: document.__meta__!.hash, variables }),
  })
  const { data, errors } = (await response.json()) as { data: Result; errors?: { message: string }[] }
  if (errors) throw new Error(errors[0]!.message)
  return data
}

const { project } = await send(Dashboard, { at: '2025-04-02T00:00:00Z' })
const recordedAt: string | undefined = project?.versionInfo.recordedAt
check('types', [project?.id, project?.version, project?.tags[0]?.name, typeof recordedAt], ['Project:hearth@16', 16, 'Home automation', 'string'])
const lost = (await send(Rename, { input: { key: 'home-automation', expectedVersion: 1, patch: { name: 'Home' } } })).updateTag
if (lost.__typename !== 'TagConflict') throw new Error(lost.__typename)
check('a lost race', lost.changesSince[0]?.newValue, 'Smart home')
const won = (await send(Rename, { input: { key: 'home-automation', expectedVersion: lost.actualVersion, patch: { name: 'Home' } } })).updateTag
check('won', won.__typename === 'UpdateTagSuccess' && won.tag.name, 'Home')
console.log('passed')
