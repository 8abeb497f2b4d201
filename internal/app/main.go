// Package app puts the program together: command line, configuration, HTTP
// server and shutdown.
//
// Invariants:
//
//   - Nothing here decides what time, a version or a document means; that is
//     package storage's.
//   - Main has no global state: tests run many of them side by side.
//   - Errors of use (flags, addresses, names of files) end with status 2, an
//     import or export that a signal interrupted with 130, all others with 1,
//     each with a sentence on standard error.
//   - Without authentication the server listens on this machine only, unless it
//     is told to accept that.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/alecthomas/kong"

	"github.com/asof/asof/storage"
)

// Main is one run of the program. Its fields are what was generated from
// schema.graphqls, and what it touches of the world outside.
type Main struct {
	Types          []*storage.Type                               // of all documents
	Schema         func(*storage.Store) graphql.ExecutableSchema // that answers for them, called once for a store
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Now            func() time.Time

	flags   flags
	command string // what ParseFlags found
	unknown []unknownVariable
}

// The exit status of the program.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// ParseFlags reads the command line (without the program's name) and the
// ASOF_… variables of the environment. It returns done where there is nothing
// left to run: after --help and --version, which are also commands, and without
// arguments.
func (m *Main) ParseFlags(args []string) (done bool, err error) {
	parser, err := kong.New(&m.flags,
		kong.Name("asof"),
		kong.Description("A GraphQL server for documents that remember every version."),
		kong.UsageOnError(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.Writers(m.Stdout, m.Stderr),
		kong.Exit(func(int) { done = true }),
		kong.DefaultEnvars("ASOF"),
		kong.ValueFormatter(describeFlag),
		kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(readDuration)),
		kong.TypeMapper(reflect.TypeFor[slog.Level](), kong.MapperFunc(readLevel)),
		kong.Vars{"version": "asof " + version()},
	)
	if err != nil {
		return false, fmt.Errorf("the definition of the flags: %w", err)
	}
	known := variables(parser.Model.Node)
	ignoreEmpty(parser.Model.Node)
	parsed, err := parser.Parse(spelledOut(args))
	if done {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	m.command = parsed.Command()
	m.unknown = unknownVariables(os.Environ(), known)
	return false, nil
}

// spelledOut are the arguments with what people type to look around in the words of
// the parser.
func spelledOut(args []string) []string {
	switch {
	case len(args) == 0:
		return []string{"--help"}
	case args[0] == "help":
		return append(slices.Clone(args[1:]), "--help")
	case args[0] == "version":
		return append([]string{"--version"}, args[1:]...)
	}
	return args
}

// Run parses the command line, does what it says until that is done or the
// context ends, and returns the exit status.
func (m *Main) Run(ctx context.Context, args []string) int {
	done, err := m.ParseFlags(args)
	if done {
		return exitOK
	}
	if err != nil {
		text, at := withoutSecrets(err), m.near(err)
		if at == "asof" { // there is no command yet
			text = strings.Replace(text, "unexpected argument", "unknown command", 1)
		}
		_, _ = fmt.Fprintf(m.Stderr, "asof: %s\nRun \"%s --help\" for what there is.\n", text, at)
		return exitUsage
	}
	if err = m.run(ctx); err == nil {
		return exitOK
	}
	_, _ = fmt.Fprintf(m.Stderr, "asof: %s\n", withoutSecrets(err))
	if _, usage := errors.AsType[usageError](err); usage {
		return exitUsage
	}
	if _, interrupted := errors.AsType[interruptedError](err); interrupted {
		return exitInterrupted
	}
	return exitFailure
}

// near is the command that a mistake in the command line was made at, as far as
// it was understood: what follows has flags of its own.
func (m *Main) near(err error) string {
	parse, ok := errors.AsType[*kong.ParseError](err)
	if !ok || parse.Context == nil || parse.Context.Selected() == nil {
		return "asof"
	}
	return "asof " + parse.Context.Selected().Name
}

func (m *Main) run(ctx context.Context) error {
	if m.command != "health" { // which says so where it fails: it is run every few seconds
		warnUnknown(ctx, m.logger(), m.unknown)
	}
	switch m.command {
	case "serve":
		return m.serve(ctx)
	case "import <file>":
		return m.importFile(ctx)
	case "export", "export <file>":
		return m.exportFile(ctx)
	case "check":
		return m.check(ctx)
	case "health":
		err := m.health(ctx)
		if err != nil {
			warnUnknown(ctx, m.logger(), m.unknown)
		}
		return err
	default:
		return usageError{fmt.Errorf("unknown command %q", m.command)}
	}
}

// usageError is a mistake in how the program was called.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }

func (e usageError) Unwrap() error { return e.err }

// interruptedError says what was done until a signal came.
type interruptedError struct{ text string }

func (e interruptedError) Error() string { return e.text }

// version is that of the module, and of the source it was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown version)"
	}
	text := info.Main.Version
	if text == "" || text == "(devel)" {
		text = "development version"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			text += " " + s.Value[:12]
		}
		if s.Key == "vcs.modified" && s.Value == "true" {
			text += " with changes"
		}
	}
	return text + " (" + info.GoVersion + ")"
}
