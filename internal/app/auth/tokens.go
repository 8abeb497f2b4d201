package auth

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"
)

// tokenPrefix is how API tokens begin, so that programs that look for secrets find them.
const tokenPrefix = "asof_"

// Token is an API token, as a file has it: a line of JSON for each. The token itself, which
// has 256 random bits, is nowhere.
type Token struct {
	Name    string    `json:"name"` // who it stands for; several may have it
	Roles   []string  `json:"roles,omitempty"`
	Created time.Time `json:"created"`
	SHA256  string    `json:"sha256"` // of the token, in hexadecimal digits
}

// ID distinguishes the tokens of a name.
func (t *Token) ID() string { return t.SHA256[:12] }

// tokenFile is a file of API tokens, which is read again when it has changed.
type tokenFile struct {
	name string

	mu   sync.Mutex
	info fs.FileInfo // of the file that was read; nil: none was
	list []Token
}

// verify returns who a token stands for.
func (f *tokenFile) verify(token string) (*Identity, error) {
	list, err := f.known()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(token))
	hash := []byte(hex.EncodeToString(sum[:]))
	var found *Token
	for i := range list {
		if subtle.ConstantTimeCompare([]byte(list[i].SHA256), hash) == 1 {
			found = &list[i]
		}
	}
	if found == nil {
		return nil, invalid("the API token is not known; it may have been revoked")
	}
	return &Identity{ID: found.Name, Roles: found.Roles}, nil
}

// known is read for a request.
func (f *tokenFile) known() ([]Token, error) {
	list, err := f.read()
	if err != nil {
		return nil, unavailable("the file of API tokens cannot be read; see --tokens")
	}
	return list, nil
}

// read returns the tokens in the file.
func (f *tokenFile) read() ([]Token, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.name)
	if err != nil {
		return nil, fmt.Errorf("--tokens: %w; make the file with asof token add", err)
	}
	if f.info != nil && os.SameFile(f.info, info) && f.info.ModTime().Equal(info.ModTime()) && f.info.Size() == info.Size() {
		return f.list, nil
	}
	list, err := Tokens(f.name)
	if err != nil {
		return nil, err
	}
	f.info, f.list = info, list
	return list, nil
}

// Tokens returns the tokens in a file.
func Tokens(file string) ([]Token, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--tokens: %w", err)
	}
	var list []Token
	for n, line := range bytes.Split(bytes.TrimRight(text, "\n"), []byte("\n")) {
		if len(line) == 0 {
			continue
		}
		var t Token
		err := json.Unmarshal(line, &t)
		if err == nil {
			err = t.check()
		}
		if err != nil {
			return nil, fmt.Errorf("--tokens %s, line %d: %w", file, n+1, err)
		}
		list = append(list, t)
	}
	return list, nil
}

func (t *Token) check() error {
	if err := CheckName(t.Name); err != nil {
		return fmt.Errorf("the name %w", err)
	}
	sum, err := hex.DecodeString(t.SHA256)
	if err != nil || len(sum) != sha256.Size {
		return errors.New(`"sha256" must be 64 hexadecimal digits`)
	}
	t.SHA256 = hex.EncodeToString(sum) // in small letters
	slices.Sort(t.Roles)
	return nil
}

// AddToken adds a new token to a file, which it makes where there is none, and returns the
// token. It is told nowhere else.
func AddToken(file, name string, roles []string, now time.Time) (string, error) {
	secret := make([]byte, sha256.Size)
	_, _ = rand.Read(secret) // never fails
	token := tokenPrefix + base64.RawURLEncoding.EncodeToString(secret)
	sum := sha256.Sum256([]byte(token))
	t := Token{Name: name, Roles: roles, Created: now.UTC().Truncate(time.Second), SHA256: hex.EncodeToString(sum[:])}
	if err := t.check(); err != nil {
		return "", err
	}
	err := changeTokens(file, func(list []Token) []Token { return append(list, t) })
	return token, err
}

// RevokeTokens removes the tokens of a name, or the one with an ID, from a file, and returns
// how many those were.
func RevokeTokens(file, which string) (int, error) {
	revoked := 0
	err := changeTokens(file, func(list []Token) []Token {
		return slices.DeleteFunc(list, func(t Token) bool {
			gone := t.Name == which || t.ID() == which
			if gone {
				revoked++
			}
			return gone
		})
	})
	return revoked, err
}

// changeTokens replaces a file by one with other tokens, at once, so that a server reads all
// or none of them. Only one process does that at a time.
func changeTokens(file string, change func([]Token) []Token) (err error) {
	next := file + ".new"
	out, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s is being changed by another asof token; if none runs, one was killed: delete %s", file, next)
	}
	if err != nil {
		return fmt.Errorf("--tokens: %w", err)
	}
	defer func() {
		if err != nil {
			_ = out.Close()
			_ = os.Remove(next)
		}
	}()
	list, err := Tokens(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	lines := json.NewEncoder(out)
	for _, t := range change(list) {
		if err := lines.Encode(t); err != nil {
			return err
		}
	}
	if err := errors.Join(out.Sync(), out.Close()); err != nil {
		return err
	}
	return os.Rename(next, file)
}
