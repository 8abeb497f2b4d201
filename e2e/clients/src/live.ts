// A page that shows what is written to tags, by graphql-ws: ?api=URL
import { createClient } from 'graphql-ws'

const api = new URLSearchParams(location.search).get('api')! + '/graphql'
document.body.innerHTML = '<style>body { font: 16px sans-serif; margin: 2em }</style><h1>Tags, live</h1><output>loading</output><ol></ol>'
const state = document.querySelector('output')!
const events = document.querySelector('ol')!

const headers = { 'Content-Type': 'application/json' }
const list = await (await fetch(api, { method: 'POST', headers, body: JSON.stringify({ query: '{ tags { totalCount } }' }) })).json()
let since: object = { asOf: list.extensions.asOf }
const client = createClient({
  url: api.replace('http', 'ws'),
  retryAttempts: Infinity,
  shouldRetry: () => true, // also where a server that is starting refuses the connection
  retryWait: () => new Promise((done) => setTimeout(done, 50)),
  on: {
    connected: () => (state.textContent = 'connected'),
    closed: () => (state.textContent = 'connecting again'),
  },
})
const follow = () =>
  client.subscribe(
    {
      query: 'subscription Tags($since: Since) { tagsChanged(since: $since) { kind key document { version name } deletedId } }',
      variables: { get since() { return since } },
    },
    {
      next({ data, extensions }: any) {
        const { kind, key, document: tag, deletedId } = data.tagsChanged
        events.append(Object.assign(document.createElement('li'), { textContent: `${kind} ${key}: ${tag?.name ?? deletedId}` }))
        since = { position: extensions.position }
      },
      error(errors: any) {
        const { code, position } = errors[0]?.extensions ?? {}
        state.textContent = JSON.stringify(errors)
        if (code !== 'TOO_SLOW' && code !== 'UNAVAILABLE') return
        if (position) since = { position }
        setTimeout(follow, 50)
      },
      complete: () => (state.textContent = 'complete'),
    },
  )
follow()
