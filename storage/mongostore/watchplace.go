package mongostore

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/binary"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/asof/asof/storage/driver"
)

// watchPlace is what a position says. What arrived up to from was told; within a
// round, which has a to, also all of (from, to] up to a version, if there is one.
//
// It is written as the store's identity, from, to, and the collection, key and
// number of that version, such that positions of one watch compare as they
// follow on each other.
type watchPlace struct {
	store           []byte
	from, to        driver.Instant
	collection, key string
	number          int64
}

const (
	identityBytes = 16
	instantBytes  = 8
)

// positionEncoding keeps the order of bytes.
var positionEncoding = base32.HexEncoding.WithPadding(base32.NoPadding)

func (p *watchPlace) encode() driver.WatchPosition {
	b := bytes.Clone(p.store)
	b = binary.BigEndian.AppendUint64(b, uint64(p.from))
	if p.to != 0 {
		b = binary.BigEndian.AppendUint64(b, uint64(p.to))
		b = appendText(b, p.collection)
		b = appendText(b, p.key)
		b = binary.BigEndian.AppendUint64(b, uint64(p.number))
	}
	return driver.WatchPosition(positionEncoding.EncodeToString(b))
}

// appendText writes a text such that texts compare as they do, and one that
// goes on after another is greater whatever follows.
func appendText(b []byte, text string) []byte {
	for i := range len(text) {
		if b = append(b, text[i]); text[i] == 0 {
			b = append(b, 0xFF)
		}
	}
	return append(b, 0, 0)
}

// readText reads what appendText wrote; not ok: it did not.
func readText(b []byte) (text string, rest []byte, ok bool) {
	var read []byte
	for i := 0; i+1 < len(b); i++ {
		switch {
		case b[i] != 0:
			read = append(read, b[i])
		case b[i+1] == 0:
			return string(read), b[i+2:], true
		default:
			read = append(read, 0)
			i++
		}
	}
	return "", nil, false
}

func (p *watchPlace) decode(position driver.WatchPosition) error {
	b, err := positionEncoding.DecodeString(string(position))
	if err != nil || positionEncoding.EncodeToString(b) != string(position) || len(b) < identityBytes {
		return malformed(position)
	}
	if !bytes.Equal(b[:identityBytes], p.store) {
		return invalidf("the position is of another store; begin from now, or from the beginning")
	}
	b = b[identityBytes:]
	if len(b) != instantBytes && len(b) < 2*instantBytes {
		return malformed(position)
	}
	p.from = driver.Instant(binary.BigEndian.Uint64(b))
	if b = b[instantBytes:]; len(b) > 0 {
		p.to = driver.Instant(binary.BigEndian.Uint64(b))
		var ok bool
		if p.collection, b, ok = readText(b[instantBytes:]); ok {
			p.key, b, ok = readText(b)
		}
		if !ok || len(b) != instantBytes || p.to <= p.from {
			return malformed(position)
		}
		p.number = int64(binary.BigEndian.Uint64(b))
	}
	if p.from < 0 || p.number < 0 {
		return malformed(position)
	}
	return nil
}

func malformed(position driver.WatchPosition) error {
	const most = 100
	return invalidf("%q is not a position of a watch", position[:min(len(position), most)])
}

// identity tells the store from all others. It is chosen when it is first asked
// for; a copy of the database has the same.
func (s *Store) identity(ctx context.Context) ([]byte, error) {
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	id := make([]byte, identityBytes)
	_, _ = rand.Read(id) // it never fails
	byID := bson.D{{Key: "_id", Value: storeID}}
	none := append(byID, bson.E{Key: "identity", Value: bson.D{{Key: "$exists", Value: false}}})
	for {
		var stored struct {
			Identity []byte `bson:"identity"`
		}
		if err := s.meta.FindOne(ctx, byID).Decode(&stored); err != nil {
			return nil, wrap(err, "reading the store's identity")
		}
		if len(stored.Identity) == identityBytes {
			return stored.Identity, nil
		}
		if _, err := s.meta.UpdateOne(ctx, none, bson.D{{Key: "$set", Value: bson.D{{Key: "identity", Value: id}}}}); err != nil {
			return nil, wrap(err, "noting the store's identity")
		}
	}
}
