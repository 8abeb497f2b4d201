package main

import (
	"bytes"
	"compress/gzip"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	mit = "Copyright 2026 Somebody\n\nPermission is hereby granted, free of charge,\nto any person obtaining a copy of this software and so on.\n"
	bsd = "Copyright 2026 Somebody else\n\nRedistribution and use in source and binary forms, with or without\nmodification, are permitted provided that and so on.\n"
	gpl = "GNU GENERAL PUBLIC LICENSE\nVersion 3\n"
	mpl = "Mozilla Public License, version 2.0\n"
)

// program writes a program that links the packages lib and lib/deep of a module,
// whose other files are given, and of which a test uses another module, which
// has no license.
func program(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	all := map[string]string{
		"go.mod": "module example.com/program\n\ngo 1.26\n\nrequire (\n\texample.com/lib v1.2.3\n\texample.com/tool v1.0.0\n)\n\n" +
			"replace (\n\texample.com/lib => ./lib\n\texample.com/tool => ./tool\n)\n",
		"main.go":            "package main\n\nimport _ \"example.com/lib\"\n\nfunc main() {}\n",
		"main_test.go":       "package main\n\nimport _ \"example.com/tool\"\n",
		"lib/go.mod":         "module example.com/lib\n\ngo 1.26\n",
		"lib/lib.go":         "package lib\n\nimport _ \"example.com/lib/deep/down\"\n",
		"lib/deep/down/a.go": "package down\n",
		"lib/other/a.go":     "package other\n",
		"tool/go.mod":        "module example.com/tool\n\ngo 1.26\n",
		"tool/tool.go":       "package tool\n",
	}
	maps.Copy(all, files)
	for name, text := range all {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// playground writes the notices of a Playground of one package.
func playground(t *testing.T, license string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "licenses.gz")
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write([]byte("An introduction.\n\n" + rule + "\n\n@some/package 1.0.0-rc.1 (" + license + ")\n\nIts text.\n")); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, zipped.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// Notices have the texts of what is linked, and nothing of what is not.
func TestNotices(t *testing.T) {
	dir := program(t, map[string]string{
		"lib/LICENSE":           mit,
		"lib/NOTICE.txt":        "Made by Somebody.",
		"lib/license.go":        "package lib\n",
		"lib/deep/LICENCE-BSD":  bsd,
		"lib/deep/down/COPYING": mit,
		"lib/other/LICENSE":     gpl,
	})
	text, err := notices(dir, playground(t, "MIT"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"  Go, its libraries and runtime (BSD)\n", "The Go Authors",
		"  example.com/lib v1.2.3 (BSD, MIT)\n", "  @some/package 1.0.0-rc.1 (MIT)\n",
		"example.com/lib v1.2.3: LICENSE\n\nCopyright 2026 Somebody\n", "Made by Somebody.", "Copyright 2026 Somebody else", "Its text.",
		"example.com/lib v1.2.3: deep/down/COPYING\n\nThe same text as example.com/lib v1.2.3: LICENSE.\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the notices lack %q", want)
		}
	}
	for _, other := range []string{"GNU GENERAL", "example.com/tool", "license.go", "/lib/other"} {
		if strings.Contains(string(text), other) {
			t.Errorf("the notices have %q", other)
		}
	}
}

// What may not be shipped, or what nobody knows to be allowed, has no notices.
func TestWhatCannotBeShipped(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		npm   string
		want  string
	}{
		"no license":                     {nil, "MIT", "example.com/lib v1.2.3 comes without a license"},
		"a notice only":                  {map[string]string{"lib/NOTICE": "Made by Somebody."}, "MIT", "comes without a license"},
		"unknown":                        {map[string]string{"lib/LICENSE": "Ask me."}, "MIT", "LICENSE is no license that is known"},
		"unknown beside a known one":     {map[string]string{"lib/LICENSE": mit, "lib/deep/LICENSE": "Ask me."}, "MIT", "deep/LICENSE is no license that is known"},
		"copyleft":                       {map[string]string{"lib/LICENSE": gpl}, "MIT", `"general public license"`},
		"copyleft in one file with MIT":  {map[string]string{"lib/LICENSE": mit + gpl}, "MIT", `"general public license"`},
		"copyleft in what is taken over": {map[string]string{"lib/LICENSE": mit, "lib/THIRD-PARTY-NOTICES": gpl}, "MIT", `"general public license"`},
		"of files, where not taken":      {map[string]string{"lib/LICENSE": mpl}, "MIT", `"mozilla public license"`},
		"copyleft in the Playground":     {map[string]string{"lib/LICENSE": mit}, "GPL-3.0", "@some/package 1.0.0-rc.1 (GPL-3.0): GPL-3.0 is not known"},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := notices(program(t, c.files), playground(t, c.npm))
			if err == nil || !strings.Contains(err.Error(), c.want) || text != nil {
				t.Errorf("error %v and %d bytes, want one that says %s", err, len(text), c.want)
			}
		})
	}
}
