package app

import (
	"context"
	"log/slog"

	"github.com/asof/asof/internal/app/httpapi"
)

// logger writes to standard error.
func (m *Main) logger() *slog.Logger {
	options := &slog.HandlerOptions{Level: m.flags.LogLevel}
	if m.flags.LogFormat == "json" {
		options.ReplaceAttr = inSeconds
		return slog.New(named{slog.NewJSONHandler(m.Stderr, options)})
	}
	return slog.New(named{slog.NewTextHandler(m.Stderr, options)})
}

// inSeconds names the unit of a duration, which is a bare number in JSON.
func inSeconds(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		return slog.Float64(a.Key+"Seconds", a.Value.Duration().Seconds())
	}
	return a
}

// named is a log whose lines name the request in which they were written.
type named struct{ slog.Handler }

func (n named) Handle(ctx context.Context, r slog.Record) error {
	if request := httpapi.RequestID(ctx); request != "" {
		r.AddAttrs(slog.String("request", request))
	}
	return n.Handler.Handle(ctx, r)
}

func (n named) WithAttrs(attrs []slog.Attr) slog.Handler { return named{n.Handler.WithAttrs(attrs)} }

func (n named) WithGroup(name string) slog.Handler { return named{n.Handler.WithGroup(name)} }
