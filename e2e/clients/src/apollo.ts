// An app with Apollo Client 4.
import { ApolloClient, HttpLink, InMemoryCache, gql, type TypedDocumentNode } from '@apollo/client'
import { check, countingFetch, other, quiet, requests, somebody, until, url } from './check'
import { possibleTypes, typePolicies } from '../generated/apollo'

const newClient = (policies = typePolicies) =>
  new ApolloClient({
    link: new HttpLink({ uri: url, fetch: countingFetch, headers: { 'X-Actor': 'ada' } }),
    cache: new InMemoryCache({ possibleTypes, typePolicies: policies }),
  })
const query = (text: string): TypedDocumentNode<any, any> => gql(text)

async function lists() {
  const client = newClient()
  for (const fields of ['nodes { id name }', 'edges { cursor node { id name } }']) {
    const list = client.watchQuery({
      query: query(`query List($after: String) { tags(first: 4, after: $after) { ${fields} pageInfo { hasNextPage endCursor } } }`),
    })
    list.subscribe({})
    const names = () => {
      const { tags } = (list.getCurrentResult().data as any) ?? {}
      return (tags?.nodes ?? tags?.edges?.map((edge: any) => edge.node))?.map((tag: any) => tag.name)
    }
    await until('the first page', () => names()?.length === 4)
    const after = (list.getCurrentResult().data as any).tags.pageInfo.endCursor
    await list.fetchMore({ variables: { after } })
    await until('the second page', () => names()?.length > 4)
    await list.fetchMore({ variables: { after } }) // once too often
    check('pages of ' + fields, names(), (await other('{ tags(first: 8) { nodes { name } } }')).tags.nodes.map((tag: any) => tag.name))
    list.stop()
  }
}

async function pastBesideNow() {
  const client = newClient()
  const at = query('query At($at: DateTime) { project(key: "hearth", asOf: $at) { id tags(asOf: $at) { id name } } }')
  const now = query('{ project(key: "hearth") { id name tags { id name } } }')
  const read = async (fetchPolicy: 'network-only' | 'cache-only', asOf: string) =>
    ((await client.query({ query: at, variables: { at: asOf }, fetchPolicy })).data as any).project
  const first = await read('network-only', '2025-04-02T00:00:00Z')
  const today = ((await client.query({ query: now })).data as any).project
  const second = await read('network-only', '2025-04-03T00:00:00Z')
  check('one version, two instants', [first.id, second.id, first.tags[0].name, second.tags[0].name], ['Project:hearth@16', 'Project:hearth@16', 'Home automation', 'Smart home'])
  check('the first from the cache', await read('cache-only', '2025-04-02T00:00:00Z'), first)
  check('the present from the cache', ((await client.query({ query: now, fetchPolicy: 'cache-only' })).data as any).project, today)
  const document = query('query Node($id: ID!) { node(id: $id) { ... on Document { key version } } }')
  check('a fragment on an interface', ((await client.query({ query: document, variables: { id: first.id } })).data as any).node, {
    __typename: 'Project', key: 'hearth', version: 16,
  })
}

const conflict = `__typename
  ... on UpdateTagSuccess { tag { id version name description } }
  ... on TagConflict { message actualVersion mergeable overlappingPaths changesSince { path oldValue newValue changedBy { id } } current { id version name description } }`
const save = query(`mutation Save($input: UpdateTagInput!) { updateTag(input: $input) { ${conflict} } }`)

async function edits() {
  const client = newClient()
  await other('mutation { createTag(input: {key: "apollo", data: {name: "A", description: "a"}}) { __typename } }')
  const shown = client.watchQuery({ query: query('{ tag(key: "apollo") { id version name description } tags(first: 500) { nodes { id name } } }') })
  shown.subscribe({})
  const tag = () => (shown.getCurrentResult().data as any)?.tag
  await until('the tag', tag)
  await other('mutation { updateTag(input: {key: "apollo", expectedVersion: 1, patch: {name: "B"}}) { __typename } }')
  const send = async (input: object) => ((await client.mutate({ mutation: save, variables: { input: { key: 'apollo', ...input } } })).data as any).updateTag
  const lost = await send({ expectedVersion: tag().version, patch: { name: 'C', description: 'c' } })
  check('a lost race', [lost.__typename, lost.overlappingPaths, lost.changesSince[0].newValue, lost.changesSince[0].changedBy.id], ['TagConflict', ['/name'], 'B', somebody])
  check('what is shown then', [tag().name, tag().version], ['B', 2])
  const merged = await send({ expectedVersion: 1, patch: { description: 'c' }, onConflict: 'MERGE' })
  check('merged', [merged.tag.name, merged.tag.description], ['B', 'c'])
  const won = await send({ expectedVersion: merged.tag.version, patch: { name: 'C' } })
  check('won', [won.tag.version, tag().name, tag().description], [4, 'C', 'c'])
  const before = (shown.getCurrentResult().data as any).tags.nodes.length
  await client.mutate({
    mutation: query('mutation { deleteTag(input: {key: "apollo", expectedVersion: 4}) { ... on DeleteTagSuccess { deletedId } } }'),
    update(cache, { data }) {
      cache.evict({ id: cache.identify({ __typename: 'Tag', id: (data as any).deleteTag.deletedId }) })
      cache.gc()
    },
  })
  await until('the list without what was deleted', () => (shown.getCurrentResult().data as any)?.tags.nodes.length === before - 1)
  check('deleted', tag() ?? null, null)
  await quiet(requests)
}

// Two parts of the page that show different fields of what has no id.
async function watchers(policies: typeof typePolicies) {
  const client = newClient(policies)
  const parts = [
    'project(key: "hearth") { id currentRelease { tag } versionInfo { number } changelog(first: 2) { nodes { path } } }',
    'project(key: "hearth") { id currentRelease { publishedAt } versionInfo { author { id } } }',
    'tag(key: "home-automation") { id delegateTo { title } externalLinks { title } blame { path } }',
    'tag(key: "home-automation") { id delegateTo { url } externalLinks { url } blame { version } }',
  ]
  const since = requests
  const shown = parts.map((part) => client.watchQuery({ query: query(`{ ${part} }`) }))
  shown.forEach((part) => part.subscribe({}))
  await Promise.all(shown.map((part) => until('each part', () => part.getCurrentResult().dataState === 'complete')))
  return quiet(since)
}

await lists()
await pastBesideNow()
await edits()
check('requests of four watchers', await watchers(typePolicies), 4)
if ((await watchers({})) <= 4) throw new Error('without the policies the watchers do not disturb each other: they are not needed')
console.log('passed')
