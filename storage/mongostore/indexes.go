package mongostore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/asof/asof/storage/driver"
)

// declare makes the indexes of a collection. Those that are no longer declared
// stay: other servers may still run with the schema that declares them. As long as it
// takes, the log says so after each time that a call may take otherwise.
func (c *collection) declare(ctx context.Context, declared []driver.Index) error {
	ended := make(chan struct{})
	defer close(ended)
	go c.tellWaiting(c.store.timeout, ended)
	how := options.CreateIndexes()
	if c.store.majorities {
		// By default every member that votes has to have made an index before it is
		// there: one that is down would keep asof from starting. A server that is no
		// member refuses to be asked for a quorum.
		how.SetCommitQuorumMajority()
	}
	main, history := c.indexes(declared)
	if _, err := c.main.Indexes().CreateMany(ctx, main, how); err != nil {
		return err
	}
	_, err := c.history.Indexes().CreateMany(ctx, history, how)
	return err
}

// tellWaiting logs from time to time that indexes are being made, until they are.
func (c *collection) tellWaiting(each time.Duration, ended <-chan struct{}) {
	every := time.NewTicker(each)
	defer every.Stop()
	for times := time.Duration(1); ; times++ {
		select {
		case <-every.C:
			c.store.logger.Info("the indexes of a large collection are being made; asof starts when they are there", "collection", c.name, "for", times*each)
		case <-ended:
			return
		}
	}
}

// indexes lists what a collection and its overflow are indexed by. Each
// declared index is there on current versions, where the key follows, which makes
// it an order; in prev; and in the overflow. Of a field that can be sorted by, two
// are on current versions: keys ascend within an order whatever its direction, and
// an index, read from either end, has the keys of equal values in its own
// direction or in that against it. So descending orders need one whose keys
// descend. As those only save a sort, there are no more than a collection may have.
func (c *collection) indexes(declared []driver.Index) (main, history []mongo.IndexModel) {
	main = []mongo.IndexModel{
		index("current.at", "_id", "current.v", "current.del"), // what changed since; the log; how many there are, see Stats
		index("current.at", "-_id"),                            // what changed last, by key at one time
		index("prev.at"),
		sparse(index("current." + loadedField)), // what was loaded since
	}
	history = []mongo.IndexModel{
		index("k", "n"),          // a version by number
		index("k", "from", "to"), // a version at an instant
		index("to", "from"),      // all versions at an instant
	}
	var descending []mongo.IndexModel
	for _, d := range declared {
		if len(d.Path) == 0 || len(d.Path) >= maxDepth {
			continue
		}
		name := func(list string) string {
			if d.List {
				return at(list).value(d.Path) + "." + readingList + "." + reading(d.Kind)
			}
			return at(list).value(d.Path) + "." + reading(d.Kind)
		}
		main = append(main, index(name("current"), "_id"), index(name("prev")))
		if !d.List {
			descending = append(descending, index(name("current"), "-_id"))
		}
		history = append(history, index(name("vs")))
	}
	room := max(0, min(len(descending), maxIndexes-len(main)))
	return append(main, descending[:room]...), history
}

// maxIndexes is how many indexes MongoDB lets a collection have, besides that of _id.
const maxIndexes = 63

// sparse makes an index one of the documents that have the field.
func sparse(m mongo.IndexModel) mongo.IndexModel {
	m.Options.SetSparse(true)
	return m
}

// index is one of some fields; descending where a minus is before the name.
func index(fields ...string) mongo.IndexModel {
	var keys bson.D
	name := "asof"
	for _, field := range fields {
		name += "_" + field
		direction := int32(1)
		if rest, descending := strings.CutPrefix(field, "-"); descending {
			field, direction = rest, -1
		}
		keys = append(keys, bson.E{Key: field, Value: direction})
	}
	// Older servers limit the length of names.
	const longest = 100
	if len(name) > longest {
		sum := sha256.Sum256([]byte(name))
		name = "asof_" + hex.EncodeToString(sum[:8])
	}
	return mongo.IndexModel{Keys: keys, Options: options.Index().SetName(name)}
}
