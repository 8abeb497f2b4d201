// Command cmd regenerates everything that follows from schema.graphqls. Run it
// in the directory of that file, as "go generate ./..." does.
package main

import (
	"fmt"
	"os"

	"github.com/asof/asof/internal/codegen"
)

func main() {
	if err := codegen.Generate(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
