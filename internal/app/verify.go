package app

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/asof/asof/storage/checkpoint"
	"github.com/asof/asof/storage/driver"
)

// checkpoint prints the checkpoint of now.
func (m *Main) checkpoint(ctx context.Context) (err error) {
	key, err := readKey[ed25519.PrivateKey](m.flags.Checkpoint.PrivateKey, "--private-key")
	if err != nil {
		return err
	}
	engine, err := m.openEngine(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	line, err := checkpointLine(ctx, engine, key)
	if err != nil {
		return err
	}
	_, err = m.Stdout.Write(line)
	return err
}

// checkpointLine makes the checkpoint of now, signed where there is a key: a line of JSON.
func checkpointLine(ctx context.Context, engine driver.Engine, key ed25519.PrivateKey) ([]byte, error) {
	now, err := engine.Now(ctx)
	if err != nil {
		return nil, err
	}
	c, err := checkpoint.Make(ctx, engine, now)
	if err != nil {
		return nil, err
	}
	if key != nil {
		c.Sign(key)
	}
	line, err := json.Marshal(c)
	return append(line, '\n'), err
}

// checkpointEvery is how long a server waits before it makes another checkpoint, for which the
// whole log is read.
const checkpointEvery = time.Hour

// startCheckpoints has a server make checkpoints where --checkpoint-key says so, for GET /checkpoint.
// It returns what ends that and waits for the end.
func (m *Main) startCheckpoints(ctx context.Context, site *site) (stop func()) {
	if m.checkpointKey == nil {
		return func() {}
	}
	return background(ctx, func(ctx context.Context) {
		for pause := time.Duration(0); wait(ctx, pause); {
			pause = checkpointEvery
			line, err := checkpointLine(ctx, site.engine, m.checkpointKey)
			if err == nil {
				site.checkpoint.Store(&line)
			} else if ctx.Err() == nil {
				site.logger.WarnContext(ctx, "a checkpoint will be made in a minute", "error", err)
				pause = time.Minute
			}
		}
	})
}

// lastCheckpoint answers with the last checkpoint; 503 before the first one was made.
func (s *site) lastCheckpoint(w http.ResponseWriter, _ *http.Request) {
	line := s.checkpoint.Load()
	if line == nil {
		plain(w, http.StatusServiceUnavailable, "the first checkpoint is being made")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(*line) // a client that has gone
}

// verify compares the store with what was seen of it earlier.
func (m *Main) verify(ctx context.Context) (err error) {
	f := &m.flags.Verify
	var kept *checkpoint.Checkpoint
	hash, err := hex.DecodeString(f.Since)
	if err != nil {
		return usageError{fmt.Errorf("--since %s: want the hash of a version, 64 hexadecimal digits", f.Since)}
	}
	if f.Checkpoint != "" {
		key, err := readKey[ed25519.PublicKey](f.PublicKey, "--public-key")
		if err != nil {
			return err
		}
		text, err := os.ReadFile(f.Checkpoint)
		if err != nil {
			return usageError{fmt.Errorf("cannot read: %w", err)}
		}
		if kept, err = checkpoint.Parse(text, key); err != nil {
			return fmt.Errorf("%s: %w", f.Checkpoint, err)
		}
	}
	engine, err := m.openEngine(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	if kept == nil {
		found, err := checkpoint.VerifySince(ctx, engine, hash, f.Collection, f.Key)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(m.Stdout, "%s %q: version %d of %s is as it was, followed by %s\n", found.First.Collection, found.First.Key,
			found.First.Number, found.First.RecordedAt, plural(found.Last.Number-found.First.Number, "version"))
		return err
	}
	var problems []string
	if err := engine.Check(ctx, func(problem string) {
		if len(problems) < maxProblems {
			problems = append(problems, problem)
		}
	}); err != nil {
		return err
	}
	now, err := checkpoint.Make(ctx, engine, kept.At)
	if err != nil {
		return err
	}
	problems = append(problems, kept.Compare(now)...)
	for _, problem := range problems {
		if _, err := fmt.Fprintln(m.Stdout, problem); err != nil {
			return err
		}
	}
	if loaded, err := engine.Loaded(ctx); err == nil && loaded > kept.At && len(problems) > 0 {
		_, err = fmt.Fprintf(m.Stdout, "an import at %s added versions, which may be of before the checkpoint\n", loaded)
		if err != nil {
			return err
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("%s is not what it was at %s", m.storeName(), kept.AtText)
	}
	_, err = fmt.Fprintf(m.Stdout, "%s holds what it held at %s: %s\n", m.storeName(), kept.AtText, kept.Root)
	return err
}

// maxProblems is how many problems of a check are kept to be printed.
const maxProblems = 100

// readKey reads a key of a kind from a file in PEM; none where no file is named.
func readKey[K ed25519.PrivateKey | ed25519.PublicKey](file, flag string) (key K, err error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, usageError{fmt.Errorf("%s: cannot read: %w", flag, err)}
	}
	wrong := usageError{fmt.Errorf("%s %s: want an Ed25519 key in PEM (openssl genpkey -algorithm ed25519; its public part: openssl pkey -pubout)", flag, file)}
	block, rest := pem.Decode(text)
	if block == nil || len(rest) > 0 && !slices.Equal(rest, []byte("\n")) {
		return nil, wrong
	}
	var parsed any
	if _, private := any(key).(ed25519.PrivateKey); private {
		parsed, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	} else {
		parsed, err = x509.ParsePKIXPublicKey(block.Bytes)
	}
	key, ok := parsed.(K)
	if err != nil || !ok {
		return nil, wrong
	}
	return key, nil
}
