package app

import (
	"context"
	"log/slog"

	"github.com/asof/asof/internal/app/httpapi"
)

// logger writes to standard error.
func (m *Main) logger() *slog.Logger {
	options := &slog.HandlerOptions{Level: m.flags.LogLevel, ReplaceAttr: clipped}
	if m.flags.LogFormat == "json" {
		options.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr { return inSeconds(clipped(groups, a)) }
		return slog.New(named{slog.NewJSONHandler(m.Stderr, options)})
	}
	return slog.New(named{slog.NewTextHandler(m.Stderr, options)})
}

// clipped keeps what somebody else has chosen from filling the log, whichever line
// it is in. A stack is the program's own text.
func clipped(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString:
		if a.Key != "stack" {
			a.Value = slog.StringValue(httpapi.Clip(a.Value.String()))
		}
	case slog.KindAny: // an error, a list
		if text := a.Value.String(); a.Key != slog.LevelKey && httpapi.Clip(text) != text {
			a.Value = slog.StringValue(httpapi.Clip(text))
		}
	default: // short
	}
	return a
}

// inSeconds names the unit of a duration, which is a bare number in JSON.
func inSeconds(a slog.Attr) slog.Attr {
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
