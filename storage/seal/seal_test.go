package seal

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/asof/asof/storage/driver"
)

func example() *driver.Version {
	return &driver.Version{
		Collection: "things", Key: "a", Number: 2, RecordedAt: 1_700_000_000_000_000, SupersededAt: driver.Forever, Op: driver.OpUpdate,
		Author: "ann", Message: "m", Group: "g", Changed: []string{"n", "s"}, Data: []byte(`{"n":1,"s":"x"}`),
	}
}

// What the package comment says, written down by hand, so that a change of what is
// covered is noticed: other programs verify by it.
func TestFormat(t *testing.T) {
	v := example()
	v.Seal = append(bytes.Repeat([]byte{7}, 16), make([]byte, 32)...)
	before := bytes.Repeat([]byte{9}, 48)
	n := func(b byte) string { return "\x00\x00\x00\x00\x00\x00\x00" + string(b) }
	c := sha256.Sum256([]byte("asof content 1\n" + string(v.Seal[:16]) + n(2) + n(0) +
		n(3) + "ann" + n(1) + "m" + n(1) + "g" + n(2) + n(1) + "n" + n(1) + "s" + n(15) + `{"n":1,"s":"x"}`))
	h := sha256.Sum256([]byte("asof version 1\n" + string(before[16:]) + string(c[:]) +
		n(6) + "things" + n(1) + "a" + n(2) + "\x00\x06\x0a\x24\x18\x1e\x40\x00"))
	copy(v.Seal[16:], h[:])
	if err := Verify(before, v); err != nil {
		t.Errorf("the format is not as it is described: %v", err)
	}
	if got := hex.EncodeToString(Hash(v.Seal)); got != hex.EncodeToString(h[:]) {
		t.Errorf("Hash: %s", got)
	}
}

func TestVerify(t *testing.T) {
	before := New(nil, example(), 0)
	changes := map[string]func(v *driver.Version){
		"collection":     func(v *driver.Version) { v.Collection = "other" },
		"key":            func(v *driver.Version) { v.Key = "b" },
		"number":         func(v *driver.Version) { v.Number++ },
		"time":           func(v *driver.Version) { v.RecordedAt++ },
		"operation":      func(v *driver.Version) { v.Op = driver.OpRestore },
		"deletion":       func(v *driver.Version) { v.Deleted = true },
		"author":         func(v *driver.Version) { v.Author = "bob" },
		"message":        func(v *driver.Version) { v.Message = "" },
		"group":          func(v *driver.Version) { v.Group = "h" },
		"between texts":  func(v *driver.Version) { v.Author, v.Message = "an", "nm" },
		"changed":        func(v *driver.Version) { v.Changed = []string{"n"} },
		"data":           func(v *driver.Version) { v.Data = []byte(`{"n":2,"s":"x"}`) },
		"salt":           func(v *driver.Version) { v.Seal[0] ^= 1 },
		"hash":           func(v *driver.Version) { v.Seal[47] ^= 1 },
		"a shorter seal": func(v *driver.Version) { v.Seal = v.Seal[:47] },
		"no seal":        func(v *driver.Version) { v.Seal = nil },
	}
	for name, change := range changes {
		v := example()
		v.Seal = New(before, v, 0)
		if err := Verify(before, v); err != nil {
			t.Fatalf("%s: before the change: %v", name, err)
		}
		change(v)
		if Verify(before, v) == nil {
			t.Errorf("a change of %s goes unnoticed", name)
		}
	}
	v := example()
	v.Seal = New(before, v, 0)
	if Verify(nil, v) == nil || Verify(v.Seal, v) == nil {
		t.Error("what is before goes unnoticed")
	}
	if bytes.Equal(New(before, v, 0)[:16], v.Seal[:16]) {
		t.Error("two seals have one salt")
	}
	superseded := *v
	superseded.SupersededAt = 5
	if err := Verify(before, &superseded); err != nil {
		t.Errorf("superseded: %v", err)
	}
}

// The schema is a part of what is sealed, and is said of the version as long as it has content.
func TestSchema(t *testing.T) {
	v := example()
	v.Seal = New(nil, v, 0)
	if Schema(v.Seal) != 0 {
		t.Errorf("not known: %x", Schema(v.Seal))
	}
	v.Seal = New(nil, v, 0x01020304)
	if len(v.Seal) != 52 || Schema(v.Seal) != 0x01020304 {
		t.Fatalf("%x", v.Seal)
	}
	if err := Verify(nil, v); err != nil {
		t.Error(err)
	}
	for name, other := range map[string][]byte{"another one": append([]byte{1, 2, 3, 5}, v.Seal[4:]...), "none": v.Seal[4:]} {
		changed := *v
		changed.Seal = other
		if Verify(nil, &changed) == nil {
			t.Errorf("%s goes unnoticed", name)
		}
	}
	next := example()
	next.Seal = New(v.Seal, next, 0)
	left, gone := *v, *v
	left.Data = []byte(`{"s":"x"}`)
	gone.Op, gone.Data = driver.OpPruned, nil
	for want, is := range map[uint32]*driver.Version{0x01020304: &left, 0: &gone} {
		is.Seal = Rewritten(v, is)
		if err := Verify(nil, is); err != nil || Schema(is.Seal) != want {
			t.Errorf("rewritten, %d bytes: schema %x: %v", len(is.Seal), Schema(is.Seal), err)
		}
		if err := Verify(is.Seal, next); err != nil {
			t.Error(err)
		}
	}
	left.Seal[3]++
	if !Erased(left.Seal) || Verify(nil, &left) == nil {
		t.Error("another schema goes unnoticed where something was erased")
	}
}

// A version that is rewritten has no salt, may say anything, and the history still holds.
func TestRewritten(t *testing.T) {
	first, second := example(), example()
	first.Number, second.Number = 1, 2
	first.Seal = New(nil, first, 0)
	second.Seal = New(first.Seal, second, 0)
	salt := bytes.Clone(first.Seal[:16])
	erased, again, none := *first, *first, *first
	erased.Data, again.Data = []byte(`{"a":null}`), []byte(`{}`)
	none.Op, none.Author, none.Message, none.Group, none.Changed, none.Data = driver.OpPruned, "", "", "", nil, nil
	for _, is := range []*driver.Version{&erased, &erased, &again, &none, &none} {
		is.Seal = Rewritten(first, is)
		if Erased(is.Seal) != (is != &none) {
			t.Errorf("operation %d has a seal of %d bytes", is.Op, len(is.Seal))
		}
		first = is
		if err := Verify(nil, first); err != nil {
			t.Errorf("the rewritten version: %v", err)
		}
		if err := Verify(first.Seal, second); err != nil {
			t.Errorf("the one after it: %v", err)
		}
	}
	if bytes.Contains(first.Seal, salt) {
		t.Error("the salt is still there")
	}
	for name, damage := range map[string]func(*driver.Version){
		"what is left":              func(v *driver.Version) { v.Data = []byte(`{"b":null}`) },
		"the hash of what is left":  func(v *driver.Version) { v.Seal[40] ^= 1 },
		"the hash of what was":      func(v *driver.Version) { v.Seal[0] ^= 1 },
		"a seal as of a pruned one": func(v *driver.Version) { v.Seal = append(v.Seal[:32:32], v.Seal[64:]...) },
	} {
		v := erased
		v.Seal = bytes.Clone(v.Seal)
		if damage(&v); Verify(nil, &v) == nil {
			t.Errorf("%s changed, and goes unnoticed", name)
		}
	}
	first.RecordedAt++
	if Verify(nil, first) == nil {
		t.Error("another time of a rewritten version goes unnoticed")
	}
}

func TestFollow(t *testing.T) {
	v := example()
	made, err := Follow(nil, v)
	if err != nil || len(made) != size {
		t.Fatalf("a version without a seal: %x, %v", made, err)
	}
	v.Seal = made
	if kept, err := Follow(nil, v); err != nil || !bytes.Equal(kept, made) {
		t.Errorf("a version with its seal: %x, %v; want %x", kept, err, made)
	}
	v.Author = "bob"
	if _, err := Follow(nil, v); err == nil {
		t.Error("a version with the seal of another is taken")
	}
}

func BenchmarkNew(b *testing.B) {
	v := example()
	v.Data = bytes.Repeat([]byte("x"), 640)
	before := New(nil, v, 0)
	b.ReportAllocs()
	for b.Loop() {
		New(before, v, 0)
	}
}
