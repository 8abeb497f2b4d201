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
//     is started with --insecure-no-auth.
package app

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/alecthomas/kong"

	"github.com/asof/asof/internal/app/auth"
	"github.com/asof/asof/storage"
	"github.com/asof/asof/storage/record"
)

// Main is one run of the program. Its fields are what was generated from
// schema.graphqls, and what it touches of the world outside.
type Main struct {
	Types          []*record.Type                                // of all documents
	Schema         func(*storage.Store) graphql.ExecutableSchema // that answers for them, called once for a store
	SDL            string                                        // what documents can hold; "": it is not noted in stores
	Migrations     map[string]storage.Migration                  // of what was written under earlier schemas, by type
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Now            func() time.Time

	flags    flags
	verifier *auth.Verifier // nil: nobody is verified
	// checkpointKey signs checkpoints of a server; nil: it makes none.
	checkpointKey ed25519.PrivateKey
	command       string   // what ParseFlags found
	unknown       []string // variables that no flag reads
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
		kong.Vars{"version": "asof " + version()},
	)
	if err != nil {
		return false, fmt.Errorf("the definition of the flags: %w", err)
	}
	known := variables(parser.Model.Node)
	ignoreEmpty(parser.Model.Node)
	parsed, err := parser.Parse(normalizeArgs(args))
	if done {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	m.command = strings.TrimSuffix(parsed.Command(), " <file>") // which import and export can do without
	m.unknown = unknownVariables(os.Environ(), known)
	return false, nil
}

// normalizeArgs replaces what people type to look around by flags that the parser knows.
func normalizeArgs(args []string) []string {
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

// Run parses the command line, executes the command until it ends or the context
// does, and returns the exit status.
func (m *Main) Run(ctx context.Context, args []string) int {
	done, err := m.ParseFlags(args)
	if done {
		return exitOK
	}
	if err != nil {
		text, at := withoutSecrets(err), m.commandOf(err)
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

// commandOf returns the command whose flags or arguments an error is about; "asof" where none
// was recognized.
func (m *Main) commandOf(err error) string {
	parse, ok := errors.AsType[*kong.ParseError](err)
	if !ok || parse.Context == nil || parse.Context.Selected() == nil {
		return "asof"
	}
	return parse.Context.Selected().FullPath()
}

func (m *Main) run(ctx context.Context) error {
	if m.command != "health" { // which is run every few seconds, and warns if it fails
		warnUnknown(ctx, m.logger(), m.unknown)
	}
	without := func(command func() error) func(context.Context) error {
		return func(context.Context) error { return command() }
	}
	within := func(command func(context.Context, *storage.Store) error) func(context.Context) error {
		return func(ctx context.Context) (err error) {
			store, err := m.openStore(ctx)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, store.Engine().Close()) }()
			return command(ctx, store)
		}
	}
	command := map[string]func(context.Context) error{
		"serve": m.serve, "import": m.importFile, "export": m.exportFile, "archive": m.archive, "capture": m.capture,
		"check": m.check, "checkpoint": m.checkpoint, "verify": m.verify, "prune": within(m.prune), "erase": within(m.erase),
		"schema diff": within(m.schemaDiff), "schema diff <number>": within(m.schemaDiff), "schema list": within(m.schemaList), "schema apply": within(m.schemaApply),
		"token add <name>": without(m.token), "token list": without(m.token), "token revoke <name>": without(m.token),
		"client-config <client>": without(m.clientConfig), "health": m.health,
	}[m.command]
	if command == nil {
		return usageError{fmt.Errorf("unknown command %q", m.command)}
	}
	err := command(ctx)
	if err != nil && m.command == "health" {
		warnUnknown(ctx, m.logger(), m.unknown)
	}
	return err
}

// usageError is a mistake in how the program was called.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }

func (e usageError) Unwrap() error { return e.err }

// interruptedError has what was done until a signal came.
type interruptedError struct{ text string }

func (e interruptedError) Error() string { return e.text }

// version is that of the module, with the source that it was built from, and of Go.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(unknown version)"
	}
	return info.Main.Version + " (" + info.GoVersion + ")"
}

// Variables of the environment that are the program's begin so, except those
// for its tests.
const (
	variablePrefix     = "ASOF_"
	testVariablePrefix = "ASOF_TEST"
)

// variables are the names of the variables of all commands' flags, sorted.
func variables(node *kong.Node) []string {
	var names []string
	for _, flag := range node.Flags {
		names = append(names, flag.Envs...)
	}
	for _, child := range node.Children {
		names = append(names, variables(child)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// ignoreEmpty makes variables that are set to nothing count as not set, for the
// flags of all commands: that is how a file for containers leaves one out.
func ignoreEmpty(node *kong.Node) {
	for _, flag := range node.Flags {
		var set []string
		for _, name := range flag.Tag.Envs {
			if value, ok := os.LookupEnv(name); !ok || value != "" {
				set = append(set, name)
			}
		}
		flag.Tag.Envs = set
	}
	for _, child := range node.Children {
		ignoreEmpty(child)
	}
}

// unknownVariables finds, in an environment (NAME=value each), the names of variables that look
// like the program's and are not among the known ones.
func unknownVariables(environment, known []string) (found []string) {
	for _, entry := range environment {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, variablePrefix) && !strings.HasPrefix(name, testVariablePrefix) && !slices.Contains(known, name) {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return found
}

// warnUnknown logs which variables have no effect, without their values, which may be secrets.
func warnUnknown(ctx context.Context, logger *slog.Logger, unknown []string) {
	for _, name := range unknown {
		logger.WarnContext(ctx, "a variable of the environment has no effect: no flag has that name (see asof --help for the flags; --cors-origin is ASOF_CORS_ORIGIN)",
			"variable", name)
	}
}
