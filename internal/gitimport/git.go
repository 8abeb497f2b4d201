package gitimport

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/asof/asof/storage/driver"
)

// Repository is a git repository of which the history is read. It is not safe for
// concurrent use.
type Repository struct {
	dir, head string
	rules     *Map
}

// Open finds the repository that a directory is in.
func Open(ctx context.Context, dir string, rules *Map) (*Repository, error) {
	if _, err := exec.LookPath("git"); err != nil {
		return nil, errors.New("git is needed to read a repository, and was not found in PATH: install it")
	}
	r := &Repository{dir: dir, rules: rules}
	shallow, err := r.output(ctx, "rev-parse", "--is-shallow-repository")
	if err != nil {
		return nil, err
	}
	if shallow != "false" {
		return nil, errors.New("the clone is shallow: it lacks the beginning of the history; run git fetch --unshallow in it")
	}
	if r.head, err = r.output(ctx, "rev-parse", "--verify", "--quiet", "HEAD^{commit}"); err != nil {
		return nil, errors.New("there is no commit at HEAD; commit something, or check out a branch")
	}
	return r, nil
}

// command prepares a run of git, which executes nothing that the repository's
// configuration names: the commands that are used here take their options from the
// arguments, and objects that are missing are not fetched, by a helper or at all.
func (r *Repository) command(ctx context.Context, args ...string) (cmd *exec.Cmd, complaint *tail) {
	cmd = exec.CommandContext(ctx, "git", append([]string{"--no-pager", "-c", "core.fsmonitor=false"}, args...)...)
	cmd.Dir = r.dir
	for _, variable := range os.Environ() {
		// Those that name another repository are not for this one.
		if !strings.HasPrefix(variable, "GIT_") || strings.HasPrefix(variable, "GIT_CONFIG") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	cmd.Env = append(cmd.Env, "GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=none", "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0", "LC_ALL=C")
	complaint = new(tail)
	cmd.Stderr = complaint
	return cmd, complaint
}

// output returns what a command prints, without the newline.
func (r *Repository) output(ctx context.Context, args ...string) (string, error) {
	cmd, complaint := r.command(ctx, args...)
	out, err := cmd.Output()
	return strings.TrimSuffix(string(out), "\n"), complaint.explain(err)
}

// tail keeps the beginning of what git complains of.
type tail struct{ bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	const most = 4 << 10
	_, err := t.Buffer.Write(p[:min(len(p), most-min(most, t.Len()))])
	return len(p), err
}

// explain adds git's complaint to the error with which it ended.
func (t *tail) explain(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("git: %w: %s", err, strings.TrimSpace(t.String()))
}

// contains reports whether a commit is HEAD or among its first parents.
func (r *Repository) contains(ctx context.Context, hash string) (bool, error) {
	cmd, complaint := r.command(ctx, "rev-list", "--first-parent", r.head)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	found := false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		found = found || lines.Text() == hash
	}
	return found, complaint.explain(cmd.Wait())
}

// commit is what is needed of one.
type commit struct {
	hash, author, email, message string
	at                           driver.Instant
	changes                      []change
}

// change is what a commit did to a file of a source.
type change struct {
	file    fileID
	key     string // of the file's path
	renamed string // the path before; empty: the same
	mode    string
	object  string // the name of its content
	deleted bool
}

// fileID is a file as one of the sources has it.
type fileID struct {
	source int
	path   string
}

// log visits the commits, oldest first, with the changes of files that the sources name.
func (r *Repository) log(ctx context.Context, visit func(*commit) error) (err error) {
	renames := "--no-renames"
	for i := range r.rules.Sources {
		if r.rules.Sources[i].FollowRenames {
			renames = "--find-renames"
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd, complaint := r.command(ctx, "log", "--first-parent", "--reverse", "--root", "--diff-merges=first-parent",
		"-z", "--raw", "--no-abbrev", renames, "-l1000", "--no-ext-diff", "--no-textconv", "--no-relative", "--no-color",
		"--no-show-signature", "--no-notes", "--no-decorate", "--encoding=UTF-8", "--format=%H%x00%ct%x00%an%x00%ae%x00%B", r.head, "--")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	in := &fields{in: bufio.NewReaderSize(out, 64<<10)}
	var last *commit
	for {
		// A commit is visited when the next one begins, or git has ended well.
		next, err := r.commit(in, last)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && last != nil {
			err = visit(last)
		}
		if err != nil {
			cancel()
			_ = cmd.Wait() // it was stopped
			return err
		}
		last = next
	}
	if err := cmd.Wait(); err != nil {
		return complaint.explain(err)
	}
	return visit(last)
}

// commit reads the changes of a commit, nil: none is open, and the beginning of the
// next one. The end of the stream is io.EOF.
func (r *Repository) commit(in *fields, open *commit) (*commit, error) {
	c := &commit{}
	for {
		field, err := in.next()
		if err != nil {
			return nil, err
		}
		field = strings.TrimPrefix(field, "\n")
		if raw, ok := strings.CutPrefix(field, ":"); ok && open != nil {
			if err := r.change(in, raw, open); err != nil {
				return nil, err
			}
			continue
		}
		c.hash = field
		break
	}
	var seconds string
	for _, into := range []*string{&seconds, &c.author, &c.email, &c.message} {
		var err error
		if *into, err = in.next(); err != nil {
			return nil, err
		}
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("commit %s has the time %q", c.hash, seconds)
	}
	const farFuture = 1 << 42 // so that microseconds do not overflow; the store takes no time near it
	c.at = driver.Instant(min(unix, farFuture)) * 1_000_000
	if open != nil {
		c.at = max(c.at, open.at+1)
	}
	return c, nil
}

// change reads one of a commit's changes: MODE MODE OBJECT OBJECT STATUS, and one path
// or, for a rename, two.
func (r *Repository) change(in *fields, raw string, c *commit) error {
	words := strings.Fields(raw)
	if len(words) != 5 {
		return fmt.Errorf("git log: unknown line %q", raw)
	}
	path, err := in.next()
	if err != nil {
		return err
	}
	from := path
	if words[4][0] == 'R' {
		if path, err = in.next(); err != nil {
			return err
		}
	}
	for i := range r.rules.Sources {
		s := &r.rules.Sources[i]
		_, was := s.match(from)
		if key, is := s.match(path); is {
			one := change{file: fileID{i, path}, key: key, mode: words[1], object: words[3], deleted: words[4] == "D"}
			if was && from != path && s.FollowRenames {
				one.renamed = from
			}
			c.changes = append(c.changes, one)
		}
		if was && from != path {
			c.changes = append(c.changes, change{file: fileID{i, from}, deleted: true})
		}
	}
	return nil
}

// fields reads texts that end with NUL.
type fields struct{ in *bufio.Reader }

// maxField is how much is kept of a field, in bytes: of a message, or of a path, which
// is then longer than a key may be.
const maxField = 64 << 10

func (f *fields) next() (string, error) {
	var text []byte
	for {
		part, err := f.in.ReadSlice(0)
		text = append(text, part[:min(len(part), maxField-len(text))]...)
		switch {
		case err == nil:
			return strings.TrimSuffix(string(text), "\x00"), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return "", err
		}
	}
}

// contents reads files by the names of their contents.
type contents struct {
	cmd       *exec.Cmd
	complaint *tail
	to        io.WriteCloser
	from      *bufio.Reader
}

func (r *Repository) contents(ctx context.Context) (c *contents, err error) {
	c = new(contents)
	c.cmd, c.complaint = r.command(ctx, "cat-file", "--batch")
	if c.to, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.from = bufio.NewReaderSize(out, 64<<10)
	return c, c.cmd.Start()
}

// errTooLarge is returned for a file that is larger than maxFile.
var errTooLarge = fmt.Errorf("is larger than %d bytes", maxFile)

// read returns a file. Other errors than errTooLarge are git's.
func (c *contents) read(object string) ([]byte, error) {
	if _, err := io.WriteString(c.to, object+"\n"); err != nil {
		return nil, cmp.Or(c.close(), err)
	}
	header, err := c.from.ReadString('\n')
	if err != nil {
		return nil, cmp.Or(c.close(), err)
	}
	words := strings.Fields(header) // OBJECT TYPE SIZE
	if len(words) != 3 {
		return nil, fmt.Errorf("git has no content %s; where the clone is a partial one, run git fetch --refetch --no-filter in it", strings.TrimSpace(header))
	}
	size, err := strconv.ParseInt(words[2], 10, 64)
	if err != nil {
		return nil, fmt.Errorf("git cat-file: unknown answer %q", header)
	}
	if size > maxFile {
		_, err := io.CopyN(io.Discard, c.from, size+1)
		return nil, errors.Join(errTooLarge, err)
	}
	data := make([]byte, size+1) // a newline follows
	if _, err := io.ReadFull(c.from, data); err != nil {
		return nil, cmp.Or(c.close(), err)
	}
	return data[:size], nil
}

// close ends git, and returns what it complained of.
func (c *contents) close() error {
	return errors.Join(c.to.Close(), c.complaint.explain(c.cmd.Wait()))
}
