// Package seal says what makes the history of a document vouch for itself: each version
// carries a hash over what it says and over the hash of the version before it. So
// whoever knows the hash of a version knows whether anything was changed in it or before it.
// Another program can verify an export by what is said here.
//
// A seal is 48 bytes, a random salt of 16 and a hash of 32:
//
//	content = SHA-256("asof content 1\n", salt, op, deleted, author, message, group,
//	                  how many names changed has, each of them, data)
//	hash    = SHA-256("asof version 1\n", hash of the version before, content,
//	                  collection, key, number, recordedAt)
//
// The first version follows on a hash of 32 zero bytes. Numbers are 8 bytes, big-endian:
// recordedAt in microseconds since 1970, op as in package driver (1 CREATE, 2 UPDATE, 3 DELETE,
// 4 RESTORE, 5 IMPORT, 7 ERASE), deleted 1 or 0. Before a text, and data, is its length in bytes, as a number.
// changed is the sorted names of the document's members in which the version differs from the one
// before, or which only one of the two has. Data is the document in normal form, nothing for a deletion.
//
// The seal of a version of which all was pruned is 64 bytes: the content's hash as it was, and the
// hash. Number, time and the versions around it still hold. Where something was erased, there are 96:
// between the two is the hash of the content that is left, with no salt. It finds what was damaged, and does
// not vouch for it: whoever may write to the database can replace both. With the salt gone, nobody
// can guess what was erased by its hash.
//
// Where it is known under which schema a version was written, 4 bytes that identify that are before all
// this (see Schema), unless it was pruned, and content begins with "asof content 2\n" and them instead. Where something
// was erased they are of the schema in whose form the rest is.
//
// Not covered is when a version was superseded, which follows from the next one.
package seal

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/asof/asof/storage/driver"
)

// The parts of a seal, in bytes.
const (
	saltSize = 16
	hashSize = sha256.Size
	size     = saltSize + hashSize
	pruned   = sha256.Size + hashSize
	erased   = sha256.Size + pruned

	schemaSize = 4
)

// New returns a seal for a version that follows on one with the seal before, nil: it is
// the first; and that was written under a schema, 0: it is not known.
func New(before []byte, v *driver.Version, schema uint32) []byte {
	s := make([]byte, 0, schemaSize+size)
	if schema != 0 {
		s = binary.BigEndian.AppendUint32(s, schema)
	}
	salted := s[:len(s)+saltSize]
	_, _ = rand.Read(salted[len(s):]) // it never fails
	h := hash(before, content(s, salted[len(s):], v), v)
	return append(salted, h[:]...)
}

// Schema returns what identifies the schema that a version was written under; 0: it is not known.
func Schema(seal []byte) uint32 {
	if known, _ := split(seal); known != nil {
		return binary.BigEndian.Uint32(known)
	}
	return 0
}

// split returns the schema in a seal, nil where it has none, and what is behind it.
func split(seal []byte) (schema, rest []byte) {
	if len(seal)%saltSize != schemaSize {
		return nil, seal
	}
	return seal[:schemaSize:schemaSize], seal[schemaSize:]
}

// Follow returns the seal of a version that is loaded: its own, if that holds (see Verify),
// or a new one where it has none.
func Follow(before []byte, v *driver.Version) ([]byte, error) {
	if len(v.Seal) == 0 {
		return New(before, v, 0), nil
	}
	if err := Verify(before, v); err != nil {
		return nil, fmt.Errorf("%w: it, or one before it, was changed after it was exported; export the document again, or, if it is to be changed, leave out \"seal\" of all its versions, which are then sealed anew", err)
	}
	return bytes.Clone(v.Seal), nil
}

// Rewritten returns the seal of a version, as it was sealed, that says something else now, perhaps in the form of
// another schema.
func Rewritten(was, is *driver.Version) []byte {
	var first []byte
	schema, rest := split(was.Seal)
	switch len(rest) {
	case size:
		c := content(schema, rest[:saltSize], was)
		first = c[:]
	case pruned, erased:
		first = rest[:sha256.Size]
	default:
		return was.Seal
	}
	if is.Op != driver.OpPruned {
		if is.Schema != 0 {
			schema = binary.BigEndian.AppendUint32(nil, is.Schema)
		}
		left := content(schema, nil, is)
		first = slices.Concat(schema, first, left[:])
	}
	return append(slices.Clip(first), Hash(was.Seal)...)
}

// Erased reports whether the seal is that of a version of which something was erased.
func Erased(seal []byte) bool {
	_, rest := split(seal)
	return len(rest) == erased
}

// Same reports whether two versions with one number and time may be the same, as something of one of
// them was pruned or erased.
func Same(a, b *driver.Version) bool {
	switch {
	case a.Op == driver.OpPruned || b.Op == driver.OpPruned:
		return true
	case Erased(a.Seal) || Erased(b.Seal):
		return a.Seal == nil || b.Seal == nil || bytes.Equal(Hash(a.Seal), Hash(b.Seal))
	}
	return false
}

// Verify returns an error unless a version is as it was sealed, and follows on one with
// the seal before; nil: it is the first.
func Verify(before []byte, v *driver.Version) error {
	var c [sha256.Size]byte
	schema, rest := split(v.Seal)
	switch len(rest) {
	case size:
		c = content(schema, rest[:saltSize], v)
	case pruned:
		if v.Op != driver.OpPruned {
			return errors.New("has the seal of a pruned version, and is none")
		}
		copy(c[:], rest)
	case erased:
		if left := content(schema, nil, v); !bytes.Equal(left[:], rest[sha256.Size:pruned]) {
			return errors.New("is not as it was left when something of it was erased")
		}
		copy(c[:], rest)
	case 0:
		return errors.New("has no seal")
	default:
		return fmt.Errorf("has a seal of %d bytes, not %d, %d or %d", len(v.Seal), size, pruned, erased)
	}
	if h := hash(before, c, v); !bytes.Equal(h[:], Hash(v.Seal)) {
		return errors.New("is not as it was sealed, or does not follow on the version before")
	}
	return nil
}

// Hash returns the hash in a seal; nil where there is none.
func Hash(seal []byte) []byte {
	if len(seal) < hashSize {
		return nil
	}
	return seal[len(seal)-hashSize:]
}

func content(schema, salt []byte, v *driver.Version) (sum [sha256.Size]byte) {
	begin := "asof content 1\n"
	if len(schema) > 0 {
		begin = "asof content 2\n"
	}
	b := append(append(append(make([]byte, 0, 512), begin...), schema...), salt...)
	deleted := int64(0)
	if v.Deleted {
		deleted = 1
	}
	b = appendNumber(appendNumber(b, int64(v.Op)), deleted)
	for _, text := range [...]string{v.Author, v.Message, v.Group} {
		b = appendText(b, text)
	}
	b = appendNumber(b, int64(len(v.Changed)))
	for _, name := range v.Changed {
		b = appendText(b, name)
	}
	h := sha256.New() // which does not copy the data
	h.Write(appendNumber(b, int64(len(v.Data))))
	h.Write(v.Data)
	h.Sum(sum[:0])
	return sum
}

func hash(before []byte, content [sha256.Size]byte, v *driver.Version) [sha256.Size]byte {
	b := append(make([]byte, 0, 256), "asof version 1\n"...)
	previous := Hash(before)
	if previous == nil {
		previous = make([]byte, hashSize)
	}
	b = appendText(appendText(append(append(b, previous...), content[:]...), v.Collection), v.Key)
	return sha256.Sum256(appendNumber(appendNumber(b, v.Number), int64(v.RecordedAt)))
}

func appendNumber(b []byte, n int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(n)) }

func appendText(b []byte, text string) []byte {
	return append(appendNumber(b, int64(len(text))), text...)
}
