// Command notices writes THIRD_PARTY_NOTICES: what is linked into the program
// and embedded in it, with its versions and the texts of its licenses. Run it in
// the module's root, whenever a module or the Playground has changed:
//
//	go run ./internal/notices
//
// It fails, and writes nothing, where something comes without a license, or with
// one that is not known to be permissive.
package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

func main() {
	text, err := notices(".", filepath.Join("internal", "web", "playground", "dist", "THIRD-PARTY-LICENSES.txt.gz"))
	if err == nil {
		err = os.WriteFile("THIRD_PARTY_NOTICES", text, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// notices returns the notices of the program in dir, and of a Playground, whose
// own notices are in a file. The error names everything that cannot be shipped.
func notices(dir, playground string) ([]byte, error) {
	modules, err := linked(dir)
	if err != nil {
		return nil, err
	}
	var list, texts bytes.Buffer
	var errs []error
	first := make(map[string]string) // where a text was printed, by the text
	for _, m := range modules {
		files, err := m.legal()
		if err != nil {
			return nil, err
		}
		kinds, err := licenses(m, files)
		errs = append(errs, err)
		fmt.Fprintf(&list, "  %s (%s)\n", m, strings.Join(kinds, ", "))
		for _, f := range files {
			title := m.String() + ": " + f.name
			if other, ok := first[f.text]; ok {
				fmt.Fprintf(&texts, "\n%s\n\n%s\n\nThe same text as %s.\n", rule, title, other)
				continue
			}
			first[f.text] = title
			fmt.Fprintf(&texts, "\n%s\n\n%s\n\n%s\n", rule, title, f.text)
		}
	}
	packages, bundled, err := bundle(playground)
	if err = errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.WriteString("asof is made of the software below. Everything in the program is listed, whatever system it is built\n" +
		"for, with the files of its authors that say under which conditions they give it away. This file is made\n" +
		"by `go run ./internal/notices`.\n\nModules of Go:\n\n")
	out.Write(list.Bytes())
	out.WriteString("\nNone is modified. `go mod download -json MODULE@VERSION` fetches the source of one from its authors.\n\n" +
		"Packages of npm in the Playground:\n\n")
	for _, p := range packages {
		fmt.Fprintf(&out, "  %s\n", p)
	}
	out.Write(texts.Bytes())
	fmt.Fprintf(&out, "\n%s\n\n%s", rule, bundled)
	return out.Bytes(), nil
}

var rule = strings.Repeat("-", 80)

// kinds are the permissive licenses, each by a sentence that no other has.
var kinds = []struct{ name, says string }{
	{"Apache-2.0", "apache license version 2.0, january 2004"},
	{"BSD", "redistribution and use in source and binary forms, with or without modification, are permitted provided"},
	{"ISC", "permission to use, copy, modify, and distribute this software for any purpose with or without fee is hereby granted"},
	{"ISC", "permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted"},
	{"MIT", "permission is hereby granted, free of charge, to any person obtaining a copy of this software"},
	{"public domain", "anyone is free to copy, modify, publish, use, compile, sell, or distribute"},
}

// restricted is what licenses say that oblige whoever ships the program to more
// than notices.
var restricted = regexp.MustCompile(`general public license|mozilla public license|eclipse public license|common development and distribution|` +
	`european union public licen[cs]e|server side public license|business source license|share-?alike|commons clause|attribution-noncommercial|for non-?commercial`)

// taken are files that the rules above refuse or do not know, with the reason
// for which they are taken nonetheless, by module and name.
var taken = map[string]string{
	// Its obligations end at its own files. These are not changed, and their
	// source is named in the notices, as section 3.2 wants.
	"github.com/hashicorp/golang-lru/v2 LICENSE": "MPL-2.0",
	// The origin of a picture, which is not in the program.
	"modernc.org/memory LICENSE-LOGO": "of a logo",
}

// npm are the licenses that a package of the Playground may have.
var npm = []string{"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC-BY-4.0", "ISC", "MIT"}

// licenses returns the kinds of a module's licenses. It is an error if there is
// none, or if a file has no known one or a restricted one.
func licenses(m module, files []file) ([]string, error) {
	var found []string
	var errs []error
	for _, f := range files {
		if kind, ok := taken[m.Path+" "+f.name]; ok {
			found = append(found, kind)
			continue
		}
		words := strings.ToLower(strings.Join(strings.Fields(f.text), " "))
		if what := restricted.FindString(words); what != "" {
			errs = append(errs, fmt.Errorf("%s: %s is of a kind that cannot be shipped: it says %q", m, f.name, what))
		}
		before := len(found)
		for _, kind := range kinds {
			if strings.Contains(words, kind.says) {
				found = append(found, kind.name)
			}
		}
		if len(found) == before && grants.MatchString(f.name) {
			errs = append(errs, fmt.Errorf("%s: %s is no license that is known: add it to internal/notices if it is permissive", m, f.name))
		}
	}
	if len(found) == 0 {
		errs = append(errs, fmt.Errorf("%s comes without a license", m))
	}
	slices.Sort(found)
	return slices.Compact(found), errors.Join(errs...)
}

// What a file is called that says something of licenses, and one that grants
// them, by itself.
var (
	legal  = regexp.MustCompile(`(?i)licen[cs]e|copying|copyright|notice|patents|third.?party`)
	grants = regexp.MustCompile(`(?i)licen[cs]e|copying|copyright`)
)

// file is one that says something of licenses.
type file struct {
	name string // as a path in the module
	text string
}

// legal returns the files of a module that say something of licenses: those
// beside its packages that are in the program, and in the directories above.
func (m module) legal() ([]file, error) {
	var files []file
	for _, dir := range m.dirs {
		entries, err := os.ReadDir(filepath.Join(m.Dir, filepath.FromSlash(dir)))
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if e.IsDir() || !legal.MatchString(e.Name()) || filepath.Ext(e.Name()) == ".go" {
				continue
			}
			name := path.Join(dir, e.Name())
			text, err := os.ReadFile(filepath.Join(m.Dir, filepath.FromSlash(name)))
			if err != nil {
				return nil, err
			}
			plain := strings.TrimPrefix(strings.ReplaceAll(string(text), "\r\n", "\n"), "\ufeff")
			files = append(files, file{name: name, text: strings.Trim(plain, "\n")})
		}
	}
	return files, nil
}

// bundle returns the packages of a Playground, each with its license, and their
// texts, of the file that its build has written.
func bundle(name string) (packages []string, text []byte, err error) {
	zipped, err := os.ReadFile(name)
	if err != nil {
		return nil, nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(zipped))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	text, err = io.ReadAll(z)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	var errs []error
	for _, found := range title.FindAllSubmatch(text, -1) {
		packages = append(packages, string(found[1]))
		if license := string(found[2]); !slices.Contains(npm, license) {
			errs = append(errs, fmt.Errorf("%s: %s is not known to be permissive: if it is, add it to internal/notices", found[1], license))
		}
	}
	if len(packages) == 0 {
		errs = append(errs, fmt.Errorf("%s lists no package", name))
	}
	return packages, text, errors.Join(errs...)
}

// title is the first line of a package's part in the notices of the Playground.
var title = regexp.MustCompile(`(?m)^-{80}\n\n(\S+ \d\S* \((.+)\))$`)

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
