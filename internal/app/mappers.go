package app

import (
	"fmt"
	"log/slog"
	"reflect"
	"regexp"
	"time"

	"github.com/alecthomas/kong"
)

// describeFlag adds the default to the help of flags whose placeholder hides it.
func describeFlag(value *kong.Value) string {
	if value.Tag == nil || value.Tag.PlaceHolder == "" || value.Default == "" {
		return kong.DefaultHelpValueFormatter(value)
	}
	shown := *value
	shown.Help += fmt.Sprintf(" Default: %s.", value.Default)
	return kong.DefaultHelpValueFormatter(&shown)
}

// readDuration reads 30s, 1m30s and the like.
func readDuration(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("duration", &text); err != nil {
		return err
	}
	d, err := time.ParseDuration(text)
	switch {
	case err == nil:
		target.SetInt(int64(d))
		return nil
	case regexp.MustCompile(`^\d+$`).MatchString(text):
		return fmt.Errorf("%q lacks a unit: write %ss for seconds", text, text)
	default:
		return fmt.Errorf("%q is no duration: write one such as 500ms, 30s or 2m", text)
	}
}

// readLevel reads the name of a level of the log.
func readLevel(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("level", &text); err != nil {
		return err
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(text)); err != nil {
		return fmt.Errorf("%q is no level: want debug, info, warn or error", text)
	}
	target.SetInt(int64(level))
	return nil
}
