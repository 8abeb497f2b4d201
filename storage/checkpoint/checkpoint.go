// Package checkpoint tells whether anything was changed of what a store held.
package checkpoint

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/asof/asof/internal/scalar/literal"
	"github.com/asof/asof/storage/driver"
	"github.com/asof/asof/storage/fault"
	"github.com/asof/asof/storage/seal"
)

// Checkpoint vouches for all that a store held at an instant: who keeps one finds out
// whether anything until then was changed, even if all seals were made anew. It can be made
// again at any later time, as pruning and erasure keep the hashes of versions.
//
// The root of a collection is that of a tree as in RFC 6962 with SHA-256. It has one leaf for each document that
// existed at the instant, deleted ones included, of its last version then:
//
//	the key's length in bytes, the key, the version's number, its hash (see package seal)
//
// in the order of times, then of keys. The root of the checkpoint is
//
//	SHA-256("asof checkpoint 1\n", at, of each collection: its name's length, its name, documents, root)
//
// with the collections by name, those without documents left out. Numbers are 8 bytes, big-endian; at is in
// microseconds since 1970. The signature is by Ed25519, of the root.
type Checkpoint struct {
	At          driver.Instant   `json:"-"`
	AtText      string           `json:"at"` // At, in RFC 3339
	Root        string           `json:"root"`
	Collections []CollectionRoot `json:"collections"`
	Signature   []byte           `json:"signature,omitempty"`
}

// CollectionRoot is what a Checkpoint says of one collection.
type CollectionRoot struct {
	Name      string `json:"name"`
	Documents int64  `json:"documents"`
	Root      string `json:"root"`
}

// Make makes the checkpoint of an instant, which must not be in the future. It reads
// the whole log, and keeps little of it. An error says where a version has no seal.
func Make(ctx context.Context, engine driver.Engine, at driver.Instant) (*Checkpoint, error) {
	stats, err := engine.Stats(ctx)
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{At: at, AtText: at.String()}
	for _, collection := range stats.Collections {
		tree, documents := merkle{}, int64(0)
		for v, err := range engine.Log(ctx, &driver.LogQuery{Collections: []string{collection.Name}, To: at + 1, Fields: []string{}}) {
			switch {
			case err != nil:
				return nil, err
			case v.SupersededAt <= at:
				continue
			case v.Seal == nil:
				return nil, fault.Errorf(fault.CodeInternal, "%s %q version %d has no hash; asof check says what is wrong", v.Collection, v.Key, v.Number)
			}
			documents++
			leaf := append(appendNumber(nil, int64(len(v.Key))), v.Key...)
			tree.add(append(appendNumber(leaf, v.Number), seal.Hash(v.Seal)...))
		}
		if documents > 0 {
			c.Collections = append(c.Collections, CollectionRoot{collection.Name, documents, hex.EncodeToString(tree.root())})
		}
	}
	c.Root = hex.EncodeToString(c.root())
	return c, nil
}

// root computes the root from those of the collections.
func (c *Checkpoint) root() []byte {
	b := appendNumber([]byte("asof checkpoint 1\n"), int64(c.At))
	for _, collection := range c.Collections {
		b = append(appendNumber(b, int64(len(collection.Name))), collection.Name...)
		root, _ := hex.DecodeString(collection.Root) // what is wrong makes another root
		b = append(appendNumber(b, collection.Documents), root...)
	}
	sum := sha256.Sum256(b)
	return sum[:]
}

// Sign signs the checkpoint.
func (c *Checkpoint) Sign(key ed25519.PrivateKey) { c.Signature = ed25519.Sign(key, c.root()) }

// Parse reads a checkpoint from JSON. Given a key, it fails unless the checkpoint was
// signed by its owner.
func Parse(text []byte, key ed25519.PublicKey) (*Checkpoint, error) {
	c := new(Checkpoint)
	if err := json.Unmarshal(text, c); err != nil {
		return nil, fmt.Errorf("it is not a checkpoint: %w", err)
	}
	at, err := literal.CutDateTime(c.AtText)
	c.At = driver.InstantOf(at)
	switch {
	case err != nil:
		return nil, fmt.Errorf("it is not a checkpoint: %w", err)
	case c.Root != hex.EncodeToString(c.root()):
		return nil, errors.New("its root is not that of its collections: it was changed")
	case key != nil && !ed25519.Verify(key, c.root(), c.Signature):
		return nil, errors.New("it was not signed with this key")
	}
	return c, nil
}

// Compare says how what another store, or the same one later, holds of the same instant differs from a
// checkpoint, one line for each collection; nothing where it is the same.
func (c *Checkpoint) Compare(now *Checkpoint) (differences []string) {
	is := make(map[string]CollectionRoot)
	for _, collection := range now.Collections {
		is[collection.Name] = collection
	}
	for _, was := range c.Collections {
		if there := is[was.Name]; there != was {
			differences = append(differences, fmt.Sprintf("%s: what it holds of %s is something else (%d documents, not %d)", was.Name, c.AtText, there.Documents, was.Documents))
		}
		delete(is, was.Name)
	}
	for name, there := range is {
		differences = append(differences, fmt.Sprintf("%s: it has %d documents of before %s, and should have none", name, there.Documents, c.AtText))
	}
	slices.Sort(differences)
	return differences
}

// merkle is a tree of RFC 6962 that grows leaf by leaf. It holds the roots of its largest full
// trees, the largest first: as many as there are ones in the binary number of its leaves.
type merkle struct {
	full   [][]byte
	leaves uint64
}

func (m *merkle) add(leaf []byte) {
	sum := sha256.Sum256(append([]byte{0}, leaf...))
	m.full = append(m.full, sum[:])
	m.leaves++
	for n := m.leaves; n%2 == 0; n /= 2 {
		m.join()
	}
}

// join makes one tree of the last two.
func (m *merkle) join() {
	last := len(m.full) - 1
	sum := sha256.Sum256(slices.Concat([]byte{1}, m.full[last-1], m.full[last]))
	m.full = append(m.full[:last-1], sum[:])
}

// root returns the root of what was added, at least one leaf, and ends the tree.
func (m *merkle) root() []byte {
	for len(m.full) > 1 {
		m.join()
	}
	return m.full[0]
}

func appendNumber(b []byte, n int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(n)) }

// Continued is what VerifySince has found.
type Continued struct {
	First, Last *driver.Version // of one document: the one with the hash, and the last one
}

// VerifySince finds the version with a hash, of one document or, without a key, of all, and
// returns an error unless all later versions of its document follow on it as they were
// sealed, and it on the one before it.
func VerifySince(ctx context.Context, engine driver.Engine, hash []byte, collection, key string) (*Continued, error) {
	q := &driver.LogQuery{Fields: []string{}}
	if collection != "" {
		q.Collections = []string{collection}
	}
	if key != "" {
		q.Keys = []string{key}
	}
	found := new(Continued)
	for v, err := range engine.Log(ctx, q) {
		if err != nil {
			return nil, err
		}
		if slices.Equal(seal.Hash(v.Seal), hash) {
			found.First = v
			break
		}
	}
	if found.First == nil {
		return nil, fmt.Errorf("no version has the hash %x: the history that it was seen in is not in this store, or was changed since", hash)
	}
	var before []byte
	for v, err := range engine.Log(ctx, &driver.LogQuery{Collections: []string{found.First.Collection}, Keys: []string{found.First.Key}, FromNumber: max(1, found.First.Number-1)}) {
		if err != nil {
			return nil, err
		}
		if v.Number == 1 || v.Number >= found.First.Number {
			if err := seal.Verify(before, v); err != nil {
				return nil, fmt.Errorf("%s %q: version %d %w", v.Collection, v.Key, v.Number, err)
			}
		}
		before, found.Last = v.Seal, v
	}
	return found, nil
}
