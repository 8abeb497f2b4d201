//go:build noplayground

package web

import "io/fs"

func distFS() fs.FS { return nil }
