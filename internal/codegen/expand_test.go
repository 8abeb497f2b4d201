package codegen

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vektah/gqlparser/v2"
	"github.com/vektah/gqlparser/v2/ast"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// sdlFiles are the SDL files of a directory of test data, without the golden ones.
func sdlFiles(t *testing.T, dir string) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join("testdata", dir, "*.graphqls"))
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, f := range all {
		if !strings.HasSuffix(f, ".expanded.graphqls") {
			files = append(files, f)
		}
	}
	if len(files) == 0 {
		t.Fatalf("no SDL in testdata/%s", dir)
	}
	return files
}

func source(t *testing.T, file string) *ast.Source {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return &ast.Source{Name: filepath.Base(file), Input: string(b)}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; run go test ./internal/codegen -run %s -update and read the result", err, t.Name())
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (-want +got):\n%s", file, diff)
	}
}

// expand returns the complete schema of sources.
func expand(sources ...*ast.Source) (sdl string, err error) {
	c, err := Read(sources...)
	if err != nil {
		return "", err
	}
	return c.SDL, nil
}

func TestExpand(t *testing.T) {
	for _, file := range sdlFiles(t, "expand") {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".graphqls"), func(t *testing.T) {
			got, err := expand(source(t, file))
			if err != nil {
				t.Fatal(err)
			}
			golden(t, strings.TrimSuffix(file, ".graphqls")+".expanded.graphqls", got)
			schema, err := gqlparser.LoadSchema(&ast.Source{Name: "expanded", Input: got})
			if err != nil {
				t.Fatalf("the expansion is not a valid schema: %v", err)
			}
			for _, def := range schema.Types {
				for _, f := range def.Fields {
					if def.Kind == ast.InputObject && f.Directives.ForName("deprecated") != nil && f.Type.NonNull && f.DefaultValue == nil {
						t.Errorf("%s.%s must be given, and is deprecated", def.Name, f.Name) // the parser lets it pass
					}
				}
			}
		})
	}
}

func TestExpandErrors(t *testing.T) {
	for _, file := range sdlFiles(t, "errors") {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".graphqls"), func(t *testing.T) {
			sdl, err := expand(source(t, file))
			if err == nil {
				t.Fatalf("no error; expanded to %d bytes", len(sdl))
			}
			var problems Problems
			if !errors.As(err, &problems) {
				t.Fatalf("error of type %T", err)
			}
			for _, p := range problems {
				if p.File == "" || p.Line == 0 {
					t.Errorf("no place in %+v", p)
				}
			}
			golden(t, strings.TrimSuffix(file, ".graphqls")+".err", err.Error()+"\n")
		})
	}
}

// Explorers learn from descriptions: everything that the generator adds has one.
func TestEverythingIsDescribed(t *testing.T) {
	sdl, err := expand(source(t, "testdata/expand/catalogue.graphqls"))
	if err != nil {
		t.Fatal(err)
	}
	schema, err := gqlparser.LoadSchema(&ast.Source{Name: "expanded", Input: sdl})
	if err != nil {
		t.Fatal(err)
	}
	described := 0
	check := func(what, description string) {
		described++
		if strings.TrimSpace(description) == "" {
			t.Errorf("%s has no description", what)
		}
	}
	for name, def := range schema.Types {
		if def.BuiltIn {
			continue
		}
		check(name, def.Description)
		for _, f := range def.Fields {
			if strings.HasPrefix(f.Name, "__") {
				continue
			}
			check(name+"."+f.Name, f.Description)
			for _, a := range f.Arguments {
				check(name+"."+f.Name+"("+a.Name+":)", a.Description)
			}
		}
		for _, v := range def.EnumValues {
			check(name+"."+v.Name, v.Description)
		}
	}
	if described < 500 {
		t.Errorf("only %d descriptions were looked at", described)
	}
}

// Whatever is written, expand either names places that are wrong or gives a
// schema that is valid.
func FuzzExpand(f *testing.F) {
	for _, dir := range []string{"expand", "errors"} {
		files, err := filepath.Glob(filepath.Join("testdata", dir, "*.graphqls"))
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, ".expanded.graphqls") {
				continue
			}
			b, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(string(b))
		}
	}
	f.Fuzz(func(t *testing.T, input string) {
		sdl, err := expand(&ast.Source{Name: "fuzz.graphqls", Input: input})
		if err != nil {
			var problems Problems
			if !errors.As(err, &problems) || len(problems) == 0 {
				t.Fatalf("error of type %T: %v", err, err)
			}
			for _, p := range problems {
				if p.File != "fuzz.graphqls" || p.Line < 1 {
					t.Errorf("no place in %+v", p)
				}
			}
			return
		}
		if _, err := gqlparser.LoadSchema(&ast.Source{Name: "expanded", Input: sdl}); err != nil {
			t.Errorf("the expansion is not valid: %v", err)
		}
	})
}
