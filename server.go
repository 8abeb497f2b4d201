// Command asof serves documents that remember every version as GraphQL.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/asof/asof/graph/model"
	"github.com/asof/asof/internal/app"
	"github.com/asof/asof/resolvers"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal ends the program in good order, a second one at once.
	context.AfterFunc(ctx, stop)
	m := app.Main{
		Types: model.Types, Schema: resolvers.NewSchema, SDL: resolvers.SDL, Migrations: resolvers.Migrations(),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Now: time.Now,
	}
	os.Exit(m.Run(ctx, os.Args[1:]))
}
