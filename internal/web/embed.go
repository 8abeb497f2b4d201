package web

import (
	"embed"
	"io/fs"
)

//go:embed playground/dist
var dist embed.FS

// distFS is the built Playground.
func distFS() fs.FS {
	sub, err := fs.Sub(dist, "playground/dist")
	if err != nil {
		panic("web: " + err.Error()) // the directory is named above: it exists
	}
	return sub
}
