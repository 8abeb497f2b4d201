// An app with urql's Graphcache.
import { Client, fetchExchange, gql } from '@urql/core'
import { cacheExchange } from '@urql/exchange-graphcache'
import { check, countingFetch, other, quiet, requests, somebody, until, url } from './check'
import { keys, possibleTypes, updates } from '../generated/urql'

const warnings: string[] = []
const newClient = () =>
  new Client({
    url,
    fetch: countingFetch,
    preferGetMethod: false,
    fetchSubscriptions: true,
    fetchOptions: { headers: { 'X-Actor': 'ada' } },
    exchanges: [cacheExchange({ keys, possibleTypes, updates, logger: (_severity, message) => warnings.push(message) }), fetchExchange],
  })

async function read(client: Client, text: string, variables = {}, requestPolicy: 'cache-first' | 'cache-only' | 'network-only' = 'cache-first') {
  const { data, error } = await client.query(gql(text), variables, { requestPolicy }).toPromise()
  if (error) throw error
  return data as any
}

function watch(client: Client, text: string) {
  const shown = { data: null as any }
  client.query(gql(text), {}).subscribe(({ data }) => (shown.data = data))
  return shown
}

async function lists() {
  const client = newClient()
  const list = 'query List($after: String) { tags(first: 4, after: $after) { nodes { id name } pageInfo { endCursor } } }'
  const first = (await read(client, list)).tags
  const second = (await read(client, list, { after: first.pageInfo.endCursor })).tags
  check('pages', [...first.nodes, ...second.nodes].map((tag: any) => tag.name), (await other('{ tags(first: 8) { nodes { name } } }')).tags.nodes.map((tag: any) => tag.name))
  const document = 'query Node($id: ID!) { node(id: $id) { id ... on Document { key version } } }'
  check('a fragment on an interface', (await read(client, document, { id: 'Project:hearth@16' })).node.version, 16)
}

async function pastBesideNow() {
  const client = newClient()
  const at = 'query At($at: DateTime) { project(key: "hearth", asOf: $at) { id tags(asOf: $at) { id name } } }'
  const now = '{ project(key: "hearth") { id name tags { id name } } }'
  const first = await read(client, at, { at: '2025-04-02T00:00:00Z' })
  const today = await read(client, now)
  const second = await read(client, at, { at: '2025-04-03T00:00:00Z' })
  check('one version, two instants', [first.project.id, second.project.id, first.project.tags[0].name, second.project.tags[0].name], [
    'Project:hearth@16', 'Project:hearth@16', 'Home automation', 'Smart home',
  ])
  check('the first from the cache', await read(client, at, { at: '2025-04-02T00:00:00Z' }, 'cache-only'), first)
  check('the present from the cache', await read(client, now, {}, 'cache-only'), today)
}

async function edits() {
  const client = newClient()
  await other('mutation { createTag(input: {key: "urql", data: {name: "A", description: "a"}}) { __typename } }')
  const shown = watch(client, '{ tag(key: "urql") { id version name description } tags(first: 500) { nodes { id name } } }')
  await until('the tag', () => shown.data?.tag)
  await other('mutation { updateTag(input: {key: "urql", expectedVersion: 1, patch: {name: "B"}}) { __typename } }')
  const send = async (input: object) => {
    const mutation = gql(`mutation Save($input: UpdateTagInput!) { updateTag(input: $input) {
      __typename
      ... on UpdateTagSuccess { tag { id version name description } }
      ... on TagConflict { actualVersion overlappingPaths changesSince { path newValue changedBy { id } } current { id version name description } } } }`)
    return (await client.mutation(mutation, { input: { key: 'urql', ...input } }).toPromise()).data.updateTag
  }
  const lost = await send({ expectedVersion: shown.data.tag.version, patch: { name: 'C', description: 'c' } })
  check('a lost race', [lost.__typename, lost.overlappingPaths, lost.changesSince[0].newValue, lost.changesSince[0].changedBy.id], ['TagConflict', ['/name'], 'B', somebody])
  await until('what is shown then', () => shown.data?.tag?.name === 'B')
  const merged = await send({ expectedVersion: 1, patch: { description: 'c' }, onConflict: 'MERGE' })
  const won = await send({ expectedVersion: merged.tag.version, patch: { name: 'C' } })
  check('merged and won', [merged.tag.name, merged.tag.description, won.tag.version], ['B', 'c', 4])
  await until('what is shown at last', () => shown.data?.tag?.name === 'C' && shown.data.tag.description === 'c')
  const before = shown.data.tags.nodes.length
  await client.mutation(gql('mutation { deleteTag(input: {key: "urql", expectedVersion: 4}) { ... on DeleteTagSuccess { deletedId } } }'), {}).toPromise()
  await until('the list without what was deleted', () => shown.data?.tag === null && shown.data.tags.nodes.length === before - 1)
  await quiet(requests)
}

async function watchers() {
  const client = newClient()
  const since = requests
  const shown = [
    '{ project(key: "hearth") { id currentRelease { tag } versionInfo { number } } }',
    '{ project(key: "hearth") { id currentRelease { publishedAt } versionInfo { author { id } } } }',
    '{ tag(key: "home-automation") { id externalLinks { title } blame { path } } }',
    '{ tag(key: "home-automation") { id externalLinks { url } blame { version } } }',
  ].map((part) => watch(client, part))
  await Promise.all(shown.map((part) => until('each part', () => part.data)))
  check('requests of four watchers', await quiet(since), 4)
}

async function live() {
  const client = newClient()
  await other('mutation { createTag(input: {key: "urql-live", data: {name: "A", description: "a"}}) { __typename } }')
  const shown = watch(client, '{ tag(key: "urql-live") { id version name } }')
  await until('the tag', () => shown.data?.tag)
  let since: object = { asOf: (await client.query(gql('{ tags { totalCount } }'), {}).toPromise()).extensions!.asOf }
  const kinds: string[] = []
  const followed = client
    .subscription(gql('subscription Tag($since: Since) { tagChanged(key: "urql-live", since: $since) { kind document { id version name } deletedId } }'), { since })
    .subscribe(({ data, extensions, error }) => {
      if (error) throw error
      kinds.push(data.tagChanged.kind)
      since = { position: extensions!.position }
    })
  await other('mutation { updateTag(input: {key: "urql-live", expectedVersion: 1, patch: {name: "B"}}) { __typename } }')
  await until('what another one wrote', () => shown.data.tag.name === 'B')
  check('events', [kinds, shown.data.tag.version], [['CHANGED'], 2])
  followed.unsubscribe()
}

await lists()
await pastBesideNow()
await edits()
await watchers()
await live()
check('warnings of missing keys', warnings.filter((warning) => warning.includes('no key could be generated')), [])
console.log('passed')
