package hostile

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// attack is one thing that a hostile client does.
type attack struct {
	name  string
	sends string // what, in words
	data  string // the store that it is tried on
	run   func(ctx context.Context, a *attacker)
	// What it must hold, beside what all must.
	ratio float64 // of a normal client's p99 under attack to idle; 0: usual
	drops bool    // the server ends connections by itself, as it should
	same  bool    // the normal client has the attacker's address
	short bool    // it is in the short form
	// refused: nothing may be answered with status 200.
	refused bool
}

// usualRatio is how much slower a normal client's slowest answers may become.
const usualRatio = 10

// attacks are all of them.
func attacks() []attack {
	list := []attack{
		{name: "documents by POST", sends: "16 connections: 8 KB documents whose fields all conflict", data: demoData, short: true, run: posting(16, conflicting)},
		{name: "documents by POST, 64 KB", sends: "16 connections: the same of 64 KB", data: demoData, run: posting(16, func(a *attacker) request { return operation(conflictsOf(a, 9000), nil) })},
		{name: "random documents", sends: "16 connections: up to 64 KB of nested fragments, aliases, arguments, variables and directives", data: demoData, short: true, run: posting(16, randomDocument)},
		{name: "documents from another site", sends: "16 connections: a document by GET, as a page of another site sends it", data: demoData, refused: true, run: posting(16, foreign)},
		{name: "documents by persisted query", sends: "16 connections: the hash of an 8 KB document that is not valid", data: demoData, run: persisted(16, func(a *attacker) string { return conflictsOf(a, 999) })},
		{name: "documents by WebSocket", sends: "16 WebSockets: the documents as messages", data: demoData, run: func(ctx context.Context, a *attacker) {
			a.sockets(ctx, 16, 0, true, func(ctx context.Context, s *socket) {
				for ctx.Err() == nil && s.send(frameText, subscribe(fmt.Sprint(a.next()), conflicting(a))) == nil {
					pause(ctx, 10*time.Millisecond)
				}
			})
		}},
		{name: "wrong fields from four addresses", sends: "1,900 connections of four addresses: 50 KB of fields that there are not", data: demoData, drops: true, run: func(ctx context.Context, a *attacker) {
			a.addresses = 4
			a.posts(ctx, 1900, func() request {
				return operation(fmt.Sprintf("{%s}", strings.Repeat(fmt.Sprintf("namesOfNothingThatThereIsInTheSchema%d ", a.next()), 990)), nil)
			})
		}},
		{name: "names of 100 KB", sends: "16 connections: operations named with 100,000 letters, by a hash of 132 bytes", data: demoData, run: persisted(16, func(a *attacker) string {
			return fmt.Sprintf("query %s%d{__typename}", strings.Repeat("n", 100_000), a.next())
		})},
	}
	list = append(list, largeAnswers()...)
	list = append(list, bodies()...)
	list = append(list, unfair()...)
	return append(list, floods()...)
}

// posting sends requests over n connections.
func posting(n int, make func(a *attacker) request) func(context.Context, *attacker) {
	return func(ctx context.Context, a *attacker) {
		a.posts(ctx, n, func() request { return make(a) })
	}
}

// conflictsOf is a document of so many fields that conflict with each other, within
// fragments within each other.
func conflictsOf(a *attacker, fields int) string {
	const fragments = 33
	var text strings.Builder
	text.WriteString("{" + strings.Repeat("...{", fragments))
	unique := a.next()
	for i := range fields {
		fmt.Fprintf(&text, "x(a:%d)", int64(i)+unique%10)
	}
	fmt.Fprintf(&text, "%s}#%d", strings.Repeat("}", fragments), unique)
	return text.String()
}

func conflicting(a *attacker) request { return operation(conflictsOf(a, 999), nil) }

// foreign is what a link or an image of another site's page makes a browser send.
func foreign(a *attacker) request {
	return request{
		method: http.MethodGet, path: "/graphql?query=" + url.QueryEscape(conflictsOf(a, 300)),
		header: map[string]string{"Origin": "https://elsewhere.example", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
	}
}

// persisted sends a document with its hash once a connection, and only the hash
// from then on.
func persisted(n int, document func(a *attacker) string) func(context.Context, *attacker) {
	return func(ctx context.Context, a *attacker) {
		text := document(a)
		sum := sha256.Sum256([]byte(text))
		hash := fmt.Sprintf(`"extensions":{"persistedQuery":{"version":1,"sha256Hash":"%s"}}`, hex.EncodeToString(sum[:]))
		whole, err := json.Marshal(text)
		if err != nil {
			return
		}
		first := true
		a.posts(ctx, n, func() request {
			a.mu.Lock()
			defer a.mu.Unlock()
			if first {
				first = false
				return request{body: `{"query":` + string(whole) + "," + hash + "}"}
			}
			return request{body: "{" + hash + "}"}
		})
	}
}

// randomDocument is a document of up to 64 KB that means little: what validation
// compares, follows and counts, in random numbers.
func randomDocument(a *attacker) request {
	random := rand.New(rand.NewPCG(uint64(a.next()), uint64(time.Now().UnixNano())))
	pick := func(list ...string) string { return list[random.IntN(len(list))] }
	var text strings.Builder
	variables := random.IntN(2) * random.IntN(500)
	text.WriteString("query q")
	for i := range variables {
		fmt.Fprintf(&text, "%s$v%d:%s", map[bool]string{true: "(", false: " "}[i == 0], i, pick("ID!", "[ID!]", "Int=1", "ProjectWhere", "Nothing"))
	}
	if variables > 0 {
		text.WriteString(")")
	}
	fragments := random.IntN(200)
	size := 1 << (10 + random.IntN(7))
	var selection func(depth int)
	selection = func(depth int) {
		text.WriteString("{")
		for range 1 + random.IntN(1<<random.IntN(10)) {
			if text.Len() > size {
				break
			}
			switch random.IntN(7) {
			case 0:
				if depth < 60 {
					text.WriteString(pick("...", "...on Project", "...on Query", "...@include(if:true)"))
					selection(depth + 1)
				}
			case 1:
				fmt.Fprintf(&text, "...f%d ", random.IntN(fragments+1))
			case 2:
				fmt.Fprintf(&text, "a%d:%s(key:%q)", random.IntN(3), pick("project", "tag", "x"), fmt.Sprint(random.IntN(50)))
				if depth < 60 {
					selection(depth + 1)
				}
			case 3:
				fmt.Fprintf(&text, "%s(a:%d) ", pick("x", "name", "key"), random.IntN(1000))
			case 4:
				fmt.Fprintf(&text, "projects(where:{name:{eq:$v%d}})", random.IntN(variables+1))
				if depth < 60 {
					selection(depth + 1)
				}
			case 5:
				text.WriteString(strings.Repeat("@skip(if:false)", random.IntN(30)))
			default:
				text.WriteString(pick("name ", "key ", "__typename ", "nodes{name} ", "tags{name} "))
			}
		}
		text.WriteString("__typename}")
	}
	selection(0)
	for i := range fragments {
		if text.Len() > size {
			break
		}
		fmt.Fprintf(&text, "fragment f%d on %s", i, pick("Project", "Query", "Nothing"))
		selection(0)
	}
	return operation(text.String(), nil)
}

// answerTags is how many texts of a megabyte an answer may have: the limit is 8 MB.
const answerTags = 7

// largeAnswers are answers as large as can be, which nobody reads.
func largeAnswers() []attack {
	ask := func(a *attacker) request {
		return operation(fmt.Sprintf(`{a%d:tags(where:{key:{startsWith:"text-"}},first:%d){nodes{description}}}`, a.next(), answerTags), nil)
	}
	with := func(name, value string) func(a *attacker) request {
		return func(a *attacker) request {
			q := ask(a)
			q.header = map[string]string{name: value}
			return q
		}
	}
	// slowly reads so many bytes a second; 0: none.
	slowly := func(make func(a *attacker) request, rate int) func(context.Context, *attacker) {
		return func(ctx context.Context, a *attacker) {
			a.hold(ctx, 64, 4096, func(ctx context.Context, c net.Conn) {
				if _, err := c.Write(make(a).bytes(a.addr)); err != nil {
					return
				}
				a.trickle(ctx, c, rate)
			})
		}
	}
	sockets := func(rate int) func(context.Context, *attacker) {
		return func(ctx context.Context, a *attacker) {
			a.sockets(ctx, 64, 4096, false, func(ctx context.Context, s *socket) {
				for range 4 {
					if s.send(frameText, subscribe(fmt.Sprint(a.next()), ask(a))) != nil {
						return
					}
				}
				a.trickle(ctx, s.Conn, rate)
			})
		}
	}
	const who = "64 connections: answers of 7 MB, "
	return []attack{
		{name: "large answers, read at once", sends: who + "read as fast as they come", data: largeData, run: posting(64, ask)},
		{name: "large answers, compressed", sends: who + "as gzip", data: largeData, run: posting(64, with("Accept-Encoding", "gzip"))},
		{name: "large answers, not read", sends: who + "not read", data: largeData, drops: true, short: true, run: slowly(ask, 0)},
		{name: "large answers, 1 KB/s", sends: who + "read at 1 KB/s", data: largeData, drops: true, run: slowly(ask, 1<<10)},
		{name: "large answers, compressed, not read", sends: who + "as gzip, not read", data: largeData, drops: true, run: slowly(with("Accept-Encoding", "gzip"), 0)},
		{name: "large answers by SSE, not read", sends: who + "as server-sent events, not read", data: largeData, drops: true, run: slowly(with("Accept", "text/event-stream"), 0)},
		{name: "large answers by WebSocket, not read", sends: "64 WebSockets: four answers of 7 MB each, not read", data: largeData, drops: true, run: sockets(0)},
		{name: "large answers by WebSocket, 1 KB/s", sends: "the same, read at 1 KB/s", data: largeData, drops: true, run: sockets(1 << 10)},
	}
}

// trickle reads so many bytes a second until the connection or the context ends.
func (a *attacker) trickle(ctx context.Context, c net.Conn, rate int) {
	buf := make([]byte, max(rate, 1))
	for ctx.Err() == nil {
		pause(ctx, time.Second)
		if rate == 0 {
			continue
		}
		if _, err := io.ReadFull(c, buf); err != nil {
			a.ended(ctx)
			return
		}
	}
}

// bodies are requests that are large, or never end.
func bodies() []attack {
	const megabyte = 1 << 20
	almost := func(rest func(ctx context.Context, c net.Conn)) func(context.Context, *attacker) {
		whole := request{body: `{"query":"{__typename}","variables":{"v":"` + strings.Repeat("v", megabyte-50) + `"}}`}
		return func(ctx context.Context, a *attacker) {
			text := whole.bytes(a.addr)
			a.hold(ctx, 2000, 0, func(ctx context.Context, c net.Conn) {
				if _, err := c.Write(text[:len(text)-1]); err != nil {
					a.ended(ctx)
					pause(ctx, 100*time.Millisecond)
					return
				}
				rest(ctx, c)
			})
		}
	}
	// wait waits for what the server says to a request that does not end.
	wait := func(_ context.Context, c net.Conn) { _, _ = io.Copy(io.Discard, c) }
	list := []attack{
		{name: "unfinished bodies", sends: "2,000 connections: 1 MB without its last byte", data: demoData, drops: true, short: true, run: almost(wait)},
		{name: "slow bodies", sends: "2,000 connections: a byte a second of a body of 1 MB", data: demoData, drops: true, run: func(ctx context.Context, a *attacker) {
			head := request{body: strings.Repeat(" ", megabyte)}.bytes(a.addr)
			a.hold(ctx, 2000, 0, func(ctx context.Context, c net.Conn) {
				_, err := c.Write(head[:len(head)-megabyte])
				for err == nil && ctx.Err() == nil {
					pause(ctx, time.Second)
					_, err = c.Write([]byte(" "))
				}
			})
		}},
	}
	fill := func(one string) string {
		return `{"query":"{__typename}","variables":{"v":[` + strings.TrimSuffix(strings.Repeat(one, (megabyte-500)/len(one)), ",") + "]}}"
	}
	var members strings.Builder
	for i := 0; members.Len() < megabyte-500; i++ {
		fmt.Fprintf(&members, `"%x":0,`, i)
	}
	deep := strings.Repeat(`{"a":`, 9_000) + "0" + strings.Repeat("}", 9_000) + ","
	for _, v := range []struct {
		name, body string
		short      bool
	}{
		{name: "[[],[],…]", body: fill("[],"), short: true},
		{name: "[{},{},…]", body: fill("{},")},
		{name: "[0,0,…]", body: fill("0,")},
		{name: `["a","a",…]`, body: fill(`"a",`)},
		{name: `{"a":{"a":…}}`, body: fill(deep)},
		{name: `{"0":0,"1":0,…}`, body: `{"query":"{__typename}","variables":{"v":{` + strings.TrimSuffix(members.String(), ",") + "}}}"},
	} {
		list = append(list,
			attack{name: "variables " + v.name, sends: "64 connections: 1 MB of them", data: demoData, short: v.short, run: posting(64, func(*attacker) request { return request{body: v.body} })},
			attack{name: "variables " + v.name + " by WebSocket", sends: "64 WebSockets: 1 MB of them in each message", data: demoData, run: func(ctx context.Context, a *attacker) {
				a.sockets(ctx, 64, 0, true, func(ctx context.Context, s *socket) {
					for ctx.Err() == nil && s.send(frameText, subscribe(fmt.Sprint(a.next()), request{body: v.body})) == nil {
						pause(ctx, 10*time.Millisecond)
					}
				})
			}})
	}
	return list
}

// The three classes of operations.
func cheap(a *attacker) request {
	return operation(fmt.Sprintf(`{a%d:project(key:"vaultwarden"){name description stars}}`, a.next()), nil)
}

func middling(a *attacker) request {
	return operation(fmt.Sprintf(`{projects(where:{stars:{gte:%d}},orderBy:[{field:stars,direction:DESC}],first:50){totalCount nodes{name description tags{name} licenses{name} platforms{name}}}}`,
		a.next()%500), nil)
}

func logged(a *attacker) request {
	return operation(fmt.Sprintf(`{a%d:changelog(where:{authors:["x"]}){totalCount}}`, a.next()), nil)
}

func scanned(a *attacker) request {
	return operation(fmt.Sprintf(`{projects(where:{description:{contains:"zzz%d"}},first:1){totalCount}}`, a.next()), nil)
}

func heavy(a *attacker) request {
	switch n := a.next(); n % 3 {
	case 0:
		return logged(a)
	case 1:
		return scanned(a)
	default:
		return operation(fmt.Sprintf(`{projects(first:20,orderBy:[{field:version,direction:DESC}]){nodes{a%d:blame{path version}}}}`, n), nil)
	}
}

// unfair are requests that the limits allow, and too many of them.
func unfair() []attack {
	const who = "64 connections of one address: "
	return []attack{
		{name: "cheap reads", sends: who + "point reads", data: catalogueData, ratio: 5, run: posting(64, cheap)},
		{name: "middling reads", sends: who + "pages of 50 with references and totals", data: catalogueData, ratio: 5, run: posting(64, middling)},
		{name: "heavy reads", sends: who + "changelogs, scans and blame", data: catalogueData, ratio: 5, run: posting(64, heavy)},
		{name: "changelogs by nobody", sends: who + `changelog(where:{authors:["x"]}){totalCount} of 750,000 versions`, data: catalogueData, ratio: 5, run: posting(64, logged)},
		{name: "changelogs from the same address", sends: "the same, and the normal client comes from that address", data: catalogueData, same: true, run: posting(64, logged)},
		{name: "scans", sends: who + "filters that no index serves", data: catalogueData, ratio: 5, run: posting(64, scanned)},
		{name: "scans of the demo", sends: "64 connections: scans, totals of changelogs", data: demoData, short: true, run: posting(64, heavy)},
	}
}

// floods are many of something small.
func floods() []attack {
	forged := func(a *attacker) request {
		n := a.next()
		junk := make([]byte, 30)
		for i := range junk {
			junk[i] = byte(rand.Uint32())
		}
		return operation([]string{
			`query($s:String!){projects(after:$s){nodes{key}}}`, `query($s:ID!){node(id:$s){id}}`, `query($s:DateTime!){projects(asOf:$s){nodes{key}}}`,
			`query($s:ID!){project(key:$s){key}}`, `query($s:String!){changelog(before:$s,last:5){nodes{path}}}`,
		}[n%5], map[string]any{"s": []string{
			hex.EncodeToString(junk), "Project:x@9223372036854775808", "WzEsIjI2OWF1YmVkZGkzMnkiLDE3NDk5MDE4MDAwMDAwMDAsInNlZWQtdmF1bHQiLDI1MjNd", "9999-12-31T23:59:59.999999Z", "\u202e\u0000\ufeff", "Project:",
		}[n%6]})
	}
	frames := func(n int, frame func(s *socket) error, drops bool) func(ctx context.Context, a *attacker) {
		return func(ctx context.Context, a *attacker) {
			a.sockets(ctx, n, 0, true, func(ctx context.Context, s *socket) {
				for ctx.Err() == nil && frame(s) == nil {
					if drops {
						pause(ctx, time.Millisecond)
					}
				}
			})
		}
	}
	raw := func(frame string) func(s *socket) error {
		return func(s *socket) error { _, err := s.Write([]byte(frame)); return err }
	}
	text := strings.Repeat("t", 1_000_000)
	return []attack{
		{name: "idle connections", sends: "5,000 connections that say nothing", data: demoData, drops: true, short: true, run: func(ctx context.Context, a *attacker) {
			a.hold(ctx, 5000, 0, func(_ context.Context, c net.Conn) { _, _ = io.Copy(io.Discard, c) })
		}},
		{name: "2,000 WebSockets", sends: "2,000 connections that upgrade", data: demoData, drops: true, run: func(ctx context.Context, a *attacker) {
			a.sockets(ctx, 2000, 0, true, func(ctx context.Context, _ *socket) { <-ctx.Done() })
		}},
		{name: "subscriptions", sends: "500 WebSockets: 16 different subscriptions each to all changes, a thousand a second; 8 connections: changes", data: demoData, drops: true, run: func(ctx context.Context, a *attacker) {
			go a.posts(ctx, 8, func() request {
				return operation(fmt.Sprintf(`mutation{createTag(input:{key:"sub-%d",data:{name:"s",description:""}}){__typename}}`, a.next()), nil)
			})
			a.sockets(ctx, 500, 0, true, func(ctx context.Context, s *socket) {
				for range 16 {
					n := a.next()
					if s.send(frameText, subscribe(fmt.Sprint(n), operation(fmt.Sprintf("subscription{changes{a%d:key document{id}changes{path newValue}}}", n), nil))) != nil {
						return
					}
				}
				<-ctx.Done()
			})
		}},
		{name: "messages", sends: "100 WebSockets: operations without a pause", data: demoData, drops: true, run: func(ctx context.Context, a *attacker) {
			a.sockets(ctx, 100, 0, true, func(ctx context.Context, s *socket) {
				for ctx.Err() == nil && s.send(frameText, subscribe(fmt.Sprint(a.next()), operation("{__typename}", nil))) == nil {
				}
			})
		}},
		{name: "pings", sends: "100 WebSockets: pings of the protocol and of the API without a pause", data: demoData, drops: true, run: frames(100, func(s *socket) error {
			if err := s.send(framePing, "ping"); err != nil {
				return err
			}
			return s.send(frameText, `{"type":"ping"}`)
		}, false)},
		{name: "malformed frames", sends: "100 WebSockets: frames without a mask, of no kind, longer than memory", data: demoData, drops: true, run: func(ctx context.Context, a *attacker) {
			for _, frame := range []string{"\x81\x05hello", "\xff\x80\x00\x00\x00\x00", "\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00", "\x01\x80\x00\x00\x00\x00"} {
				go frames(25, raw(frame), true)(ctx, a)
			}
			<-ctx.Done()
		}},
		{name: "pipelined requests", sends: "64 connections: a hundred requests before the first answer is read", data: demoData, run: func(ctx context.Context, a *attacker) {
			one := operation("{projects(first:50){nodes{name description tags{name}}}}", nil)
			a.hold(ctx, 64, 4096, func(ctx context.Context, c net.Conn) {
				const together = 100
				all := bytes.Repeat(one.bytes(a.addr), together)
				in := bufio.NewReader(c)
				for ctx.Err() == nil {
					if _, err := c.Write(all); err != nil {
						a.ended(ctx)
						return
					}
					for range together {
						if !a.answer(ctx, in) {
							return
						}
					}
				}
			})
		}},
		{name: "long headers", sends: "64 connections: 60 KB and 1 MB of headers", data: demoData, drops: true, run: posting(64, func(a *attacker) request {
			q := operation("{__typename}", nil)
			q.header = map[string]string{"X-Long": text[:60_000]}
			if a.next()%2 == 0 {
				q.header = map[string]string{"X-Actor": text}
			}
			return q
		})},
		{name: "forged cursors, ids and instants", sends: "64 connections: values that the server did not make", data: demoData, short: true, run: posting(64, forged)},
		{name: "races", sends: "64 connections: changes of one document", data: demoData, run: posting(64, func(a *attacker) request {
			n := a.next()
			if n%50 == 1 {
				return operation(`mutation{createTag(input:{key:"race",data:{name:"r",description:""}}){__typename}}`, nil)
			}
			return operation(fmt.Sprintf(`mutation{updateTag(input:{key:"race",expectedVersion:%d,patch:{name:"r%d"},onConflict:MERGE}){...on TagConflict{changesSince{path}}}}`, n%20, n), nil)
		})},
		{name: "documents of 1 MB", sends: "16 connections: creations of documents of 1 MB", data: demoData, run: posting(16, func(a *attacker) request {
			return operation(`mutation($i:CreateTagInput!){createTag(input:$i){__typename}}`, map[string]any{"i": map[string]any{
				"key": fmt.Sprintf("flood-%d-%d", a.next(), rand.Int64()), "data": map[string]any{"name": "f", "description": text},
			}})
		})},
	}
}
