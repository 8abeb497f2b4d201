package transfer

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
)

// chunks reads everything and checks the numbers of the lines.
func chunks(t *testing.T, r io.Reader, maxLine int) (lines []string, end error) {
	t.Helper()
	c := newChunker(r, maxLine)
	var got chunk
	for {
		got = c.next(got.text)
		if want := int64(len(lines) + 1); got.firstLine != want {
			t.Errorf("a chunk begins with line %d, want %d", got.firstLine, want)
		}
		for line := range strings.Lines(string(got.text)) {
			lines = append(lines, line)
		}
		if got.end != nil {
			return lines, got.end
		}
	}
}

func TestChunksOfEverySize(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var text strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&text, "%d%s\n", i, strings.Repeat("x", r.IntN(1200)))
	}
	text.WriteString(strings.Repeat("long", chunkBytes) + "\nlast\n")
	for name, reader := range map[string]io.Reader{
		"whole":       strings.NewReader(text.String()),
		"halves":      iotest.HalfReader(strings.NewReader(text.String())),
		"end at once": iotest.DataErrReader(strings.NewReader(text.String())),
	} {
		t.Run(name, func(t *testing.T) {
			lines, end := chunks(t, reader, 16<<20)
			if !errors.Is(end, io.EOF) {
				t.Error(end)
			}
			if got := strings.Join(lines, ""); got != text.String() {
				t.Errorf("%d bytes came out of %d", len(got), text.Len())
			}
		})
	}
}

// The newline behind a last line that is whole is added.
func TestLastLineWithoutNewline(t *testing.T) {
	for _, before := range []string{"", "a\n", "a\n\n", strings.Repeat("x", chunkBytes-10) + "\n"} {
		lines, end := chunks(t, strings.NewReader(before+`{"c":{"d":"}"}}`), 2*chunkBytes)
		if got := strings.Join(lines, ""); !errors.Is(end, io.EOF) || got != before+`{"c":{"d":"}"}}`+"\n" {
			t.Errorf("%d bytes, %v", len(got), end)
		}
	}
}

func TestChunkEnds(t *testing.T) {
	broken := errors.New("the disk is gone")
	tests := []struct {
		name  string
		in    io.Reader
		lines int
		line  int64 // of the error
		want  string
	}{
		{"no newline at the end", strings.NewReader("a\nb\nc"), 2, 3, "the file is cut off: it ends here in the middle of a line"},
		{"a part of an object at the end", strings.NewReader("a\nb\n" + `{"c":{}`), 2, 3, "the file is cut off: it ends here in the middle of a line"},
		{"broken", io.MultiReader(strings.NewReader("a\nb\nc"), iotest.ErrReader(broken)), 2, 3, "the disk is gone"},
		{"ends unexpectedly", io.MultiReader(strings.NewReader("a\n"), iotest.ErrReader(io.ErrUnexpectedEOF)), 1, 2, "unexpected EOF"},
		{"too long", strings.NewReader("a\n" + strings.Repeat("x", 3*chunkBytes) + "\n"), 1, 2, "is longer than the 600000 bytes"},
		{"too long at the end", strings.NewReader("a\n" + strings.Repeat("x", chunkBytes+100_000)), 1, 2, "is longer than the 600000 bytes"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			lines, end := chunks(t, test.in, 600_000)
			var le *LineError
			if !errors.As(end, &le) {
				t.Fatalf("ends with %v", end)
			}
			if len(lines) != test.lines || le.Line != test.line || !strings.Contains(le.Error(), test.want) {
				t.Errorf("%d lines, then %v", len(lines), le)
			}
		})
	}
}
