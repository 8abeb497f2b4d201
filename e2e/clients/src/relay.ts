// An app with Relay, whose documents the server trusts.
import {
  commitMutation, ConnectionHandler, createOperationDescriptor, Environment, fetchQuery, getRequest, getSingularSelector, Network, RecordSource, ROOT_ID, Store,
  type GraphQLTaggedNode, type Variables,
} from 'relay-runtime'
import { check, countingFetch, other, quiet, requests, somebody, until, url } from './check'
import { getDataID } from '../generated/relay'
import atQuery from './relay/__generated__/queriesAtQuery.graphql'
import deleteMutation from './relay/__generated__/queriesDeleteMutation.graphql'
import listQuery from './relay/__generated__/queriesListQuery.graphql'
import listFragment from './relay/__generated__/queriesList_tags.graphql'
import releaseDayQuery from './relay/__generated__/queriesReleaseDayQuery.graphql'
import releaseQuery from './relay/__generated__/queriesReleaseQuery.graphql'
import saveMutation from './relay/__generated__/queriesSaveMutation.graphql'
import tagQuery from './relay/__generated__/queriesTagQuery.graphql'
import others from './relay/others.json'

const newEnvironment = () =>
  new Environment({
    getDataID: getDataID as any,
    store: new Store(new RecordSource()),
    network: Network.create(async (operation, variables) => {
      const response = await countingFetch(url, {
        method: 'POST',
        headers: { 'Content-Type': 'application/json', 'X-Actor': 'ada' },
        body: JSON.stringify({ id: operation.id, variables }),
      })
      return response.json() as any
    }),
  })

const read = (environment: Environment, query: GraphQLTaggedNode, variables: Variables = {}, fetchPolicy: 'network-only' | 'store-or-network' = 'network-only') =>
  fetchQuery<any>(environment, query, variables, { fetchPolicy }).toPromise() as Promise<any>

// watch shows what the store has for a query, and keeps it there.
function watch(environment: Environment, query: GraphQLTaggedNode, variables: Variables = {}) {
  const operation = createOperationDescriptor(getRequest(query), variables)
  environment.retain(operation)
  const shown = { data: environment.lookup(operation.fragment).data as any }
  environment.subscribe(environment.lookup(operation.fragment), (snapshot) => (shown.data = snapshot.data))
  return shown
}

const mutate = (environment: Environment, mutation: GraphQLTaggedNode, variables: Variables) =>
  new Promise<any>((resolve, reject) => commitMutation(environment, { mutation, variables, onCompleted: resolve, onError: reject }))

async function listAndEdits() {
  const environment = newEnvironment()
  await other(others.create)
  const list = createOperationDescriptor(getRequest(listQuery), { count: 4 })
  environment.retain(list)
  await read(environment, listQuery, { count: 4 })
  const shownList = () => {
    const root = environment.lookup(list.fragment).data as any
    return environment.lookup(getSingularSelector(listFragment as any, root)!).data as any
  }
  const names = () => shownList().tags.edges.map((edge: any) => edge.node.name)
  const { endCursor } = shownList().tags.pageInfo
  const page = createOperationDescriptor(getRequest(listQuery), { count: 4, cursor: endCursor })
  await environment.execute({ operation: page }).toPromise()
  check('pages', names(), (await other(others.first)).tags.nodes.map((tag: any) => tag.name))

  const shown = watch(environment, tagQuery, { key: 'a-relay' })
  await read(environment, tagQuery, { key: 'a-relay' })
  await until('the tag', () => shown.data?.tag)
  await other(others.rename)
  const send = async (input: object) => (await mutate(environment, saveMutation, { input: { key: 'a-relay', ...input } })).updateTag
  const lost = await send({ expectedVersion: shown.data.tag.version, patch: { name: 'C', description: 'c' } })
  check('a lost race', [lost.__typename, lost.overlappingPaths, lost.changesSince[0].newValue, lost.changesSince[0].changedBy.id], ['TagConflict', ['/name'], 'B', somebody])
  check('what is shown then', shown.data.tag.name, 'B')
  const merged = await send({ expectedVersion: 1, patch: { description: 'c' }, onConflict: 'MERGE' })
  const won = await send({ expectedVersion: merged.tag.version, patch: { name: 'C' } })
  check('merged and won', [merged.tag.name, merged.tag.description, won.tag.version, shown.data.tag.name], ['B', 'c', 4, 'C'])
  const before = names().length
  await mutate(environment, deleteMutation, { input: { key: 'a-relay', expectedVersion: 4 }, connections: [ConnectionHandler.getConnectionID(ROOT_ID, 'queriesList_tags')] })
  check('deleted', [names().length, shown.data.tag], [before - 1, null])
}

async function pastBesideNow() {
  const environment = newEnvironment()
  const first = watch(environment, atQuery, { at: '2025-04-02T00:00:00Z' })
  const second = watch(environment, atQuery, { at: '2025-04-03T00:00:00Z' })
  await read(environment, atQuery, { at: '2025-04-02T00:00:00Z' })
  await read(environment, atQuery, { at: '2025-04-03T00:00:00Z' })
  check('one version, two instants', [first.data.project.id, second.data.project.id, first.data.project.tags[0].name, second.data.project.tags[0].name], [
    'Project:hearth@16', 'Project:hearth@16', 'Home automation', 'Smart home',
  ])
}

async function watchers() {
  const environment = newEnvironment()
  const since = requests
  const shown = [watch(environment, releaseQuery), watch(environment, releaseDayQuery)]
  await Promise.all([read(environment, releaseQuery), read(environment, releaseDayQuery)])
  await until('each part', () => shown.every((part) => part.data?.project))
  check('both parts', [shown[0].data.project.currentRelease.tag, shown[1].data.project.currentRelease.publishedAt], ['2025.13', '2025-12-18'])
  check('requests of two watchers', await quiet(since), 2)
}

await listAndEdits()
await pastBesideNow()
await watchers()
console.log('passed')
