package codegen

import (
	"bytes"
	"fmt"
	"go/format"
	"os"
)

// tuneExecutor changes in the executor what gqlgen has no option for: lists
// are marshalled one element after another by package scalar instead of in a
// goroutine per element.
func tuneExecutor(file string) error {
	src, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read %s: %w", file, err)
	}
	const stock, ours = "graphql.MarshalSliceConcurrently(", "scalar.MarshalList("
	const firstImport = "import (\n"
	if !bytes.Contains(src, []byte(stock)) {
		return fmt.Errorf("%s does not call %s…): gqlgen has changed; adapt tuneExecutor", file, stock)
	}
	src = bytes.ReplaceAll(src, []byte(stock), []byte(ours))
	if !bytes.Contains(src, []byte(`"`+modulePath+`internal/scalar"`)) {
		src = bytes.Replace(src, []byte(firstImport), []byte(firstImport+"\t\""+modulePath+"internal/scalar\"\n"), 1)
	}
	if src, err = format.Source(src); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return write(file, src)
}
