// A page that edits a tag with Apollo Client, in a browser: ?api=URL&key=KEY
import { ApolloClient, HttpLink, InMemoryCache, gql } from '@apollo/client'
import { possibleTypes, typePolicies } from '../generated/apollo'

const parameters = new URLSearchParams(location.search)
const key = parameters.get('key')!
const client = new ApolloClient({
  link: new HttpLink({ uri: parameters.get('api')! + '/graphql', headers: { 'X-Actor': 'ada' } }),
  cache: new InMemoryCache({ possibleTypes, typePolicies }),
})
document.body.innerHTML = `<style>body { font: 16px sans-serif; margin: 2em; max-width: 40em } label, output { display: block; margin: .5em 0 } input { width: 100% }
  #conflict { background: #fee; padding: 1em } li { margin: .3em 0 }</style>
  <h1>Edit a tag</h1><output></output>
  <label>Name <input id="name"></label><label>Description <input id="description"></label><button id="save">Save</button>
  <section id="conflict" hidden><b></b><ul></ul><button id="merge">Keep theirs, save the rest</button> <button id="insist">Save mine</button></section>`
const element = <T extends HTMLElement>(selector: string) => document.querySelector<T>(selector)!
const fields = { name: element<HTMLInputElement>('#name'), description: element<HTMLInputElement>('#description') }

// The form is about the version that its user began with.
let base: any
const begin = (tag: any) => {
  base = tag
  for (const [name, input] of Object.entries(fields)) input.value = tag[name]
  element('#conflict').hidden = true
}
client.watchQuery({ query: gql`query Tag($key: ID!) { tag(key: $key) { id version name description } }`, variables: { key } }).subscribe((result) => {
  const tag = (result.data as any)?.tag
  if (!tag) return
  element('output').textContent = `${tag.name}: ${tag.description} (version ${tag.version})`
  if (!base) begin(tag)
})

async function save(expectedVersion: number, leaveOut: string[] = []) {
  const changed = Object.entries(fields).filter(([name, input]) => input.value !== base[name] && !leaveOut.includes('/' + name))
  const patch = Object.fromEntries(changed.map(([name, input]) => [name, input.value]))
  const { data } = await client.mutate({
    mutation: gql`mutation Save($input: UpdateTagInput!) { updateTag(input: $input) {
      __typename
      ... on UpdateTagSuccess { tag { id version name description } }
      ... on TagConflict { message actualVersion overlappingPaths changesSince { path newValue changedBy { id } } current { id version name description } } } }`,
    variables: { input: { key, expectedVersion, patch, onConflict: 'MERGE' } },
  })
  const result = (data as any).updateTag
  if (result.__typename === 'UpdateTagSuccess') return begin(result.tag)
  element('#conflict b').textContent = result.message
  element('#conflict ul').replaceChildren(
    ...result.changesSince.map((change: any) => Object.assign(document.createElement('li'), { textContent: `${change.path} is now “${change.newValue}”, by ${change.changedBy.id}` })),
  )
  element('#conflict').hidden = false
  element('#merge').onclick = () => save(result.actualVersion, result.overlappingPaths)
  element('#insist').onclick = () => save(result.actualVersion)
}
element('#save').onclick = () => save(base.version)
