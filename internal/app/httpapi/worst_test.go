package httpapi

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"github.com/vektah/gqlparser/v2/parser"
	"github.com/vektah/gqlparser/v2/validator"
)

// worst are documents that are made to cost much, of at most so many bytes, and within
// the limit of tokens where they can be.
var worst = map[string]func(size int) string{
	"fields that conflict, in inline fragments":      func(size int) string { return conflicts(times(size-150, 18, 9, 1e9), 33) },
	"fields that conflict, in deep inline fragments": func(size int) string { return conflicts(times(size-8000, 18, 11, 1e9), 900) },
	"fields that can be merged, in inline fragments": func(size int) string {
		return "{" + strings.Repeat("...{", 33) + strings.Repeat("node(id:1){id}", times(size-140, 15, 9, 1e9)) + strings.Repeat("}", 34)
	},
	"fields below fields that are merged": func(size int) string { // 30 levels
		n := times(size-10, 240, 100, 1e9)
		return "{" + strings.Repeat("node(id:1){"+strings.Repeat("self{", 28)+"id"+strings.Repeat("}", 29), n) + "}"
	},
	"fields below fields that are merged, deep": func(size int) string { // 900 levels
		n := times(size-10, 5400, 1900, 1e9)
		return "{" + strings.Repeat("node(id:1){"+strings.Repeat("self{", 898)+"id"+strings.Repeat("}", 899), n) + "}"
	},
	"fragments that spread the next": func(size int) string { // each is walked by all before it
		return "{...F0}" + chain(times(size-50, 34, 9, 1e9), "F", "Query", func(i int) string { return fmt.Sprintf("...F%d", i+1) })
	},
	"fragments with fields that spread the next": func(size int) string {
		return "{...F0}" + chain(times(size-50, 70, 18, 230), "F", "Query", func(i int) string { return fmt.Sprintf("id id id hello(name:\"\")...F%d", i+1) })
	},
	"fragments that spread all behind them": func(size int) string {
		n := sqrt(times(size-50, 3, 1, 9000))
		return "{...F0}" + chain(n, "F", "Query", func(i int) string {
			var b strings.Builder
			for j := i + 1; j <= n; j++ {
				fmt.Fprintf(&b, "...F%d", j)
			}
			return b.String()
		})
	},
	"fragments that double": func(size int) string { // in a field, as often as there are aliases
		return "{node(id:1){...F0}}" + chain(times(size-50, 60, 20, 1e9), "F", "Node", func(i int) string {
			return fmt.Sprintf("a:self{...F%d}b:self{...F%d}", i+1, i+1)
		})
	},
	"fragments that double at the root": func(size int) string {
		return "{...F0}" + chain(times(size-50, 40, 11, 70), "F", "Query", func(i int) string {
			return fmt.Sprintf("...{...F%d}...F%d", i+1, i+1)
		})
	},
	"fragments in a circle": func(size int) string {
		n := times(size-50, 34, 9, 1e9)
		return "{...F0}" + chain(n, "F", "Query", func(i int) string { return fmt.Sprintf("...F%d", (i+1)%n) })
	},
	"fragments that spread all": func(size int) string {
		n := sqrt(times(size-50, 8, 2, 1e9)) - 3
		var all strings.Builder
		for i := range n {
			fmt.Fprintf(&all, "...F%d", i)
		}
		return "{...F0}" + chain(n, "F", "Query", func(int) string { return all.String() })
	},
	"operations that spread one fragment of fields": func(size int) string {
		n := times(size/2, 12, 8, 400)
		return "fragment F on Query{" + strings.Repeat("id ", times(size/2, 3, 1, 1e9)) + "}" + repeat(n, "query q%d{...F}")
	},
	"operations that spread one fragment of values": func(size int) string {
		n := times(size/2, 14, 16, 300)
		return "fragment F on Query{list(of:[" + strings.Repeat("1 ", times(size/2, 2, 2, 1e9)) + "])}" + repeat(n, "query q%d{...F}")
	},
	"operations that spread one fragment of objects": func(size int) string {
		n := times(size/2, 14, 16, 300)
		return "fragment F on Query{find(by:{and:[" + strings.Repeat("{}", times(size/2, 2, 4, 1e9)) + "]}){id}}" + repeat(n, "query q%d{...F}")
	},
	"operations that spread one fragment of directives": func(size int) string {
		n := times(size/2, 14, 16, 300)
		return "fragment F on Query{" + strings.Repeat("id@skip(if:true)@include(if:true)", times(size/2, 34, 30, 1e9)) + "}" + repeat(n, "query q%d{...F}")
	},
	"values": func(size int) string { return "{list(of:[" + strings.Repeat("1 ", times(size-20, 2, 1, 9980)) + "])}" },
	"objects": func(size int) string {
		return "{find(by:{and:[" + strings.Repeat("{}", times(size-30, 2, 2, 1e9)) + "]}){id}}"
	},
	"wrong values": func(size int) string { return "{list(of:[" + strings.Repeat("A ", times(size-20, 2, 1, 9980)) + "])}" },
	"wrong values in variables": func(size int) string {
		return "query(" + repeat(times(size-10, 14, 6, 1e9), "$v%d:Int=\"\" ") + "){id}"
	},
	"lists within each other": func(size int) string {
		n := times(size-20, 2, 2, 990)
		return "{any(of:" + strings.Repeat("[", n) + strings.Repeat("]", n) + ")}"
	},
	"wrong lists within each other, around a text": func(size int) string {
		n := times((size-20)/2, 2, 2, 990)
		return "{list(of:" + strings.Repeat("[", n) + `"` + strings.Repeat("x", size-20-2*n) + `"` + strings.Repeat("]", n) + ")}"
	},
	"lists within each other, side by side": func(size int) string {
		return "{any(of:[" + strings.Repeat(strings.Repeat("[", 20)+strings.Repeat("]", 20), times(size-20, 40, 40, 1e9)) + "])}"
	},
	"objects within each other": func(size int) string {
		n := times(size-20, 6, 4, 990)
		return "{find(by:" + strings.Repeat("{not:", n) + "{}" + strings.Repeat("}", n) + "){id}}"
	},
	"objects within each other, side by side": func(size int) string {
		return "{find(by:{and:[" + strings.Repeat(strings.Repeat("{not:", 20)+"{}"+strings.Repeat("}", 20), times(size-20, 122, 82, 1e9)) + "]}){id}}"
	},
	"wrong objects within each other": func(size int) string {
		n := times(size-20, 6, 4, 990)
		return "{find(by:" + strings.Repeat("{nod:", n) + "{}" + strings.Repeat("}", n) + "){id}}"
	},
	"keys of one object": func(size int) string { return "{any(of:{" + repeat(times(size-20, 8, 3, 1e9), "k%d:1 ") + "})}" },
	"keys of two objects in another order": func(size int) string {
		n := times(size-40, 16, 6, 1e9)
		keys := strings.Fields(repeat(n, "k%d:1 "))
		slices.Reverse(keys)
		return "{any(of:{" + repeat(n, "k%d:1 ") + "})any(of:{" + strings.Join(keys, " ") + "})}"
	},
	"wrong keys": func(size int) string {
		return "{find(by:{" + repeat(times(size-20, 10, 3, 1e9), "noty%d:1 ") + "}){id}}"
	},
	"variables": func(size int) string {
		n := times(size-30, 16, 6, 1e9)
		return "query(" + repeat(n, "$v%d:Int ") + "){list(of:[" + repeat(n, "$v%d ") + "])}"
	},
	"variables of which the last is used": func(size int) string {
		n, m := times((size-30)/2, 10, 8, 1e9), times((size-30)/2, 6, 4, 1e9)
		return "query(" + repeat(n, "$v%d:Int ") + "){list(of:[" + strings.Repeat(fmt.Sprintf("$v%d ", n-1), m) + "])}"
	},
	"variables of many operations": func(size int) string {
		n := times((size-30)/2, 10, 8, 1e9)
		return "fragment F on Query{list(of:[" + repeat(n, "$v%d ") + "])}" + strings.Repeat("query q("+repeat(n/8, "$v%d:Int ")+"){...F}", 4)
	},
	"variables that are conditions": func(size int) string {
		n := times(size-30, 36, 14, 480)
		return "query(" + repeat(n, "$v%d:Boolean=true ") + "){" + repeat(n, "id@skip(if:$v%d)@include(if:$v%[1]d)") + "}"
	},
	"types of variables within lists": func(size int) string {
		n := times(size-50, 2, 2, 990)
		return "query($v:" + strings.Repeat("[", n) + "Int" + strings.Repeat("]", n) + "){list(of:$v)}"
	},
	"directives": func(size int) string {
		return "{id" + strings.Repeat("@skip(if:true)", times(size-5, 15, 7, 1e9)) + "}"
	},
	"directives unknown": func(size int) string { return "{id" + strings.Repeat("@a", times(size-5, 2, 2, 1e9)) + "}" },
	"arguments":          func(size int) string { return "{node(" + strings.Repeat("id:1 ", times(size-15, 5, 3, 1e9)) + "){id}}" },
	"arguments unknown":  func(size int) string { return "{node(" + repeat(times(size-15, 11, 3, 1e9), "id%d:1 ") + "){id}}" },
	"a field unknown":    func(size int) string { return "{" + strings.Repeat("a", size-2) + "}" },
	"fields unknown":     func(size int) string { return "{" + repeat(times(size-2, 8, 1, 1e9), "nod%d ") + "}" },
	"fields unknown, long": func(size int) string {
		return "{" + repeat(times(size-2, 50, 1, 1e9), strings.Repeat("a", 46)+"%d ") + "}"
	},
	"a type unknown": func(size int) string { return "{...F}fragment F on " + strings.Repeat("a", size-25) + "{id}" },
	"types unknown": func(size int) string {
		return "{...F0}" + chain(times(size-60, 80, 9, 990), "F", strings.Repeat("T", 45), func(i int) string { return fmt.Sprintf("...F%d", i+1) })
	},
	"a value unknown":     func(size int) string { return `{find(by:{kind:"` + strings.Repeat("a ", (size-25)/2) + `"}){id}}` },
	"an operation unused": func(size int) string { return "query " + strings.Repeat("q", size-15) + "{id}" },
	"variables unused":    func(size int) string { return "query(" + repeat(times(size-15, 10, 4, 1e9), "$v%d:Int ") + "){id}" },
	"fragments unused": func(size int) string {
		return "{id}" + chain(times(size-50, 32, 7, 990), "F", "Query", func(int) string { return "id" })
	},
	"fragments unused, long": func(size int) string {
		return "{id}" + chain(1, strings.Repeat("F", (size-80)/2), "Query", func(int) string { return "id" })
	},
	"a comment":               func(size int) string { return "{id}#" + strings.Repeat("x", size-5) },
	"comments":                func(size int) string { return "{id" + strings.Repeat("#\n", times(size-5, 2, 1, 9990)) + "}" },
	"a block string of lines": func(size int) string { return `{node(id:"""` + strings.Repeat("\n ", (size-25)/2) + `"""){id}}` },
	"a block string of quotes": func(size int) string {
		return `{node(id:"""` + strings.Repeat(`\"""`, (size-25)/4) + `"""){id}}`
	},
	"a string of escapes": func(size int) string { return `{node(id:"` + strings.Repeat(`\n`, (size-20)/2) + `"){id}}` },
	"strings that may be half a pair": func(size int) string {
		return `{list(of:[` + strings.Repeat("\"\ufffd\"", times(size-20, 5, 1, 9980)) + `])}`
	},
	"inline fragments on types": func(size int) string {
		n := times(size-20, 22, 8, 1e9)
		return "{node(id:1){" + repeat(min(n, 300), "...on T%d{self{id}}") + "}}"
	},
	"inline fragments that never apply": func(size int) string {
		return "{node(id:1){...on T0{" + repeat(min(times(size-30, 20, 8, 990), 299), "...on T%d{id}") + "}}}"
	},
	"types and interfaces within each other": func(size int) string { // each level divides what is below again
		level := func(inner string) string {
			return "...on T0{self{" + inner + "}}...on T1{self{" + inner + "}}self{id}"
		}
		text := "id"
		for next := level(text); len(next) < size-30 && len(next) < 40_000; next = level(text) {
			text = next
		}
		return "{node(id:1){" + text + "}}"
	},
	"types and interfaces in fragments": func(size int) string {
		return "{node(id:1){...F0}}" + chain(times(size-50, 90, 40, 30), "F", "Node", func(i int) string {
			return fmt.Sprintf("...on T0{self{...F%d}}...on T1{self{...F%[1]d}}self{...F%[1]d}", i+1)
		})
	},
	"introspection within each other": func(size int) string {
		return "{" + strings.Repeat("__schema{", 32) + strings.Repeat("types{name}", times(size-350, 11, 4, 1e9)) + strings.Repeat("}", 33)
	},
	"introspection by fragments that double": func(size int) string {
		return "{__schema{types{...F0}}}" + chain(times(size-60, 65, 20, 1e9), "F", "__Type", func(i int) string {
			return fmt.Sprintf("a:ofType{...F%d}b:ofType{...F%d}", i+1, i+1)
		})
	},
	"a subscription of many fields": func(size int) string {
		return "subscription{...F0}" + chain(times(size-60, 40, 10, 1e9), "F", "Query", func(i int) string { return fmt.Sprintf("id ...F%d", i+1) })
	},
	"a name only": func(size int) string { return strings.Repeat("x", size) },
	"braces":      func(size int) string { return strings.Repeat("{", size) },
	"fields":      func(size int) string { return "{" + strings.Repeat("a ", times(size-2, 2, 1, 9990)) + "}" },
	"what is no token behind fields": func(size int) string {
		return "{" + strings.Repeat("a ", times(size-2, 2, 1, 9980)) + "?}"
	},
}

// times is how often something of so many bytes and tokens goes into a document.
func times(size, bytes, tokens, most int) int {
	return max(1, min(size/bytes, 9900/tokens, most))
}

func sqrt(n int) int { return int(math.Sqrt(float64(n))) }

// repeat is a text with the numbers from 0.
func repeat(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}

// chain are so many fragments on a type, and one more that has __typename.
func chain(n int, name, on string, in func(i int) string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "fragment %s%d on %s{%s}", name, i, on, in(i))
	}
	fmt.Fprintf(&b, "fragment %s%d on %s{__typename}", name, n, on)
	return b.String()
}

// worstSchema has what documents can be expensive with: many types, an interface of all,
// input objects within each other, a scalar of any value.
func worstSchema(t testing.TB) *fakeSchema {
	t.Helper()
	var sdl strings.Builder
	sdl.WriteString(`scalar Any input By { not: By and: [By!] kind: Kind n: Int } enum Kind { ONE TWO }
interface Node { id: ID! self: Node! }
type Query { id: ID hello(name: String): String node(id: ID!): Node! list(of: [Int]): Int any(of: Any): Int find(by: By): Node }`)
	for i := range 300 {
		fmt.Fprintf(&sdl, " type T%d implements Node { id: ID! self: Node! f%d: Int }", i, i)
	}
	schema, err := gqlparser.LoadSchema(&ast.Source{Name: "worst.graphqls", Input: sdl.String()})
	if err != nil {
		t.Fatal(err)
	}
	return &fakeSchema{schema: schema}
}

// cost is what a document takes until it is refused, or could be executed.
type cost struct {
	text  string
	cpu   time.Duration // of the process, with the collector
	bytes uint64        // that are allocated
	said  string        // the code of the first error, "invalid" or "valid"
}

// costs are what documents take, the name of each first.
func (c cost) String() string {
	return fmt.Sprintf("%.1f KB | %.1f ms | %.2f MB | %s", float64(len(c.text))/(1<<10), c.cpu.Seconds()*1000, float64(c.bytes)/(1<<20), c.said)
}

func measure(text string, fn func() gqlerror.List) cost {
	cpu := func() time.Duration {
		var usage syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage) // it cannot fail
		return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := cpu()
	list := fn()
	took := cost{text: text, cpu: cpu() - start, said: "valid"}
	runtime.ReadMemStats(&after)
	took.bytes = after.TotalAlloc - before.TotalAlloc
	if len(list) > 0 {
		took.said = "invalid"
		if code := codeOf(list[0]); code != "" && code != codeBadInput {
			took.said = code
		}
	}
	return took
}

// costNow is what a document takes here.
func costNow(t testing.TB, schema graphql.ExecutableSchema, text string) cost {
	exec := newExecutor(&Config{Schema: schema, Weight: noWeight, Recover: graphql.DefaultRecover, Introspection: true, Limits: defaultLimits()}, presentPlainly)
	return measure(text, func() gqlerror.List {
		_, list := exec.read(t.Context(), &operation{limits: &exec.Limits}, &graphql.RawParams{Query: text})
		return list
	})
}

// costBefore is what it takes by gqlparser alone, behind the limits.
func costBefore(schema graphql.ExecutableSchema, text string) cost {
	limits := defaultLimits()
	return measure(text, func() gqlerror.List {
		doc, err := parser.ParseQueryWithTokenLimit(&ast.Source{Input: text}, limits.Tokens)
		if err != nil {
			return gqlerror.List{refuse(codeTooComplex, "limits")}
		}
		return validator.ValidateWithRules(schema.Schema(), doc, nil)
	})
}

// mostBytes is what the parsing and checking of a document may allocate, in bytes.
const mostBytes = 16 << 20

// No document takes more than mostBytes, whatever it looks like: of those that are made
// for it, and of what becomes of these at random. -v prints what each takes; with
// ASOF_WORST=before, also what it takes by gqlparser alone.
func TestWorstDocuments(t *testing.T) {
	schema := worstSchema(t)
	names := slices.Sorted(maps.Keys(worst))
	random := rand.New(rand.NewPCG(13, 1))
	check := func(name string, c cost) {
		if c.bytes > mostBytes {
			t.Errorf("%s: %v", name, c)
		}
	}
	slow := map[string]bool{}
	for _, size := range []int{1 << 10, 8 << 10, 64 << 10} {
		for _, name := range names {
			c := costNow(t, schema, worst[name](size))
			check(name, c)
			t.Logf("| %s | %v |", name, c)
			if os.Getenv("ASOF_WORST") == "before" && !slow[name] {
				before := costBefore(schema, c.text)
				slow[name] = before.cpu > time.Second/5 || before.bytes > 100<<20 // the next size may take a hundred times as much
				t.Logf("| before: %s | %v |", name, before)
			}
		}
		var mostExpensive, longest cost
		for range 200 {
			edits := make([]byte, 4*(1+random.IntN(6)))
			for i := range edits {
				edits[i] = byte(random.IntN(256))
			}
			c := costNow(t, schema, grown(worst[names[random.IntN(len(names))]](size/8), edits, size))
			check(c.text, c)
			if c.bytes > mostExpensive.bytes {
				mostExpensive = c
			}
			if c.cpu > longest.cpu {
				longest = c
			}
		}
		t.Logf("| random, most memory | %v |", mostExpensive)
		t.Logf("| random, most time | %v |", longest)
	}
}

// FuzzDocuments looks for documents that take more.
func FuzzDocuments(f *testing.F) {
	schema := worstSchema(f)
	for _, text := range worst {
		f.Add(text(500), []byte{0, 10, 3, 200})
	}
	f.Fuzz(func(t *testing.T, text string, edits []byte) {
		if c := costNow(t, schema, grown(text, edits, 64<<10)); c.bytes > mostBytes {
			t.Errorf("%v: %q", c, c.text)
		}
	})
}

// grown is a document after edits of four bytes: where to begin, what to repeat (to the
// end of a pair of braces, or some characters), and how often, while it is at most so
// long.
func grown(text string, edits []byte, most int) string {
	for ; len(edits) >= 4 && text != ""; edits = edits[4:] {
		from := (int(edits[0])<<8 | int(edits[1])) % len(text)
		to := min(from+1+int(edits[2]), len(text))
		if next := strings.IndexAny(text[from:], "{[("); edits[2]%4 > 0 && next >= 0 {
			from += next
			depth := 0
			for to = from; to < len(text); {
				depth += strings.Count("{[(", text[to:to+1]) - strings.Count("}])", text[to:to+1])
				if to++; depth == 0 {
					break
				}
			}
			for edits[2]%4 > 1 && from > 0 && text[from-1] != '}' && text[from-1] != '{' && text[from-1] != ' ' {
				from-- // to the name before
			}
		}
		part := text[from:to]
		text = text[:from] + strings.Repeat(part, max(1, min(1<<(edits[3]%11), (most-len(text))/len(part)))) + text[to:]
	}
	return text
}
