package httpapi

import "strings"

// Clip leaves out the middle of a text of more than 400 bytes, and no part of a
// character: what clients sent fills no log and no error, and what the message of an
// error says around it is at its ends.
func Clip(text string) string {
	const most, end = 400, 150
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:end], "") + "…" + strings.ToValidUTF8(text[len(text)-end:], "")
}
