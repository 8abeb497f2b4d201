import { deepStrictEqual } from 'node:assert'

// The server under test, as the test names it.
export const url = process.argv[2] + '/graphql'

// requests counts what is sent; fetch is for a client to send it.
export let requests = 0
export const countingFetch: typeof fetch = (input, init) => {
  requests++
  return fetch(input, init)
}

// check compares what a flow of the app shows with what it should.
export function check(what: string, got: unknown, want: unknown) {
  deepStrictEqual(JSON.parse(JSON.stringify(got ?? null)), want, what)
  console.log('ok: ' + what)
}

// until waits for a condition; what is the message after ten seconds without it.
export async function until<T>(what: string, condition: () => T): Promise<NonNullable<T>> {
  for (const end = Date.now() + 10_000; Date.now() < end; await new Promise((done) => setTimeout(done, 10))) {
    const value = condition()
    if (value) return value
  }
  throw new Error('waited in vain: ' + what)
}

// quiet waits until nothing was sent for a while, and returns how many requests were sent since
// a number of them; a client that fetches for ever sends more than most.
export async function quiet(since: number, most = 20): Promise<number> {
  for (let before = -1; before !== requests && requests - since <= most; ) {
    before = requests
    await new Promise((done) => setTimeout(done, 200))
  }
  return requests - since
}

// somebody is somebody else, whose name looks like the id of a document.
export const somebody = 'Tag:a-relay'

// other has somebody else send a query, by another client.
export async function other(query: string): Promise<any> {
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', 'X-Actor': somebody },
    body: JSON.stringify({ query }),
  })
  const { data, errors } = (await response.json()) as any
  if (errors) throw new Error(JSON.stringify(errors))
  return data
}
