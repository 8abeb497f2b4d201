package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// systems are what the program is built for: on some it is made of other modules.
var systems = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64"}

// module is one that is linked into the program.
type module struct {
	Path, Version string
	Dir           string
	Main          bool
	dirs          []string // of its packages that are linked, and those above, as paths in Dir
}

func (m module) String() string { return strings.TrimSpace(m.Path + " " + m.Version) }

// linked returns the modules of which the program in dir is made on any of the
// systems, and Go itself, in the order of their names.
func linked(dir string) ([]module, error) {
	found := make(map[string]module)
	dirs := make(map[string]map[string]bool)
	for _, system := range systems {
		goos, goarch, _ := strings.Cut(system, "/")
		list := exec.Command("go", "list", "-deps", "-json=Dir,Module", ".")
		list.Dir = dir
		list.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch)
		var stderr bytes.Buffer
		list.Stderr = &stderr
		out, err := list.Output()
		if err != nil {
			return nil, fmt.Errorf("go list for %s: %w: %s", system, err, stderr.Bytes())
		}
		packages := json.NewDecoder(bytes.NewReader(out))
		for {
			var p struct {
				Dir    string
				Module *module
			}
			if err := packages.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, fmt.Errorf("go list for %s: %w", system, err)
			}
			if p.Module == nil || p.Module.Main { // Go's own packages have no module
				continue
			}
			m := *p.Module
			inside, err := filepath.Rel(m.Dir, p.Dir)
			if err != nil {
				return nil, err
			}
			found[m.Path] = m
			if dirs[m.Path] == nil {
				dirs[m.Path] = make(map[string]bool)
			}
			for at := filepath.ToSlash(inside); ; at = path.Dir(at) {
				dirs[m.Path][at] = true
				if at == "." {
					break
				}
			}
		}
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env GOROOT: %w", err)
	}
	modules := []module{{Path: "Go, its libraries and runtime", Dir: strings.TrimSpace(string(root)), dirs: []string{"."}}}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		m := found[name]
		m.dirs = slices.Sorted(maps.Keys(dirs[name]))
		modules = append(modules, m)
	}
	return modules, nil
}
