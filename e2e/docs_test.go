package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pages returns the texts of the README, the other pages at the root and those in
// docs by their file names.
func pages(t *testing.T) map[string]string {
	t.Helper()
	texts := make(map[string]string)
	for _, pattern := range []string{"../*.md", "../docs/*.md"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			texts[file] = string(b)
		}
	}
	return texts
}

var (
	pageLink    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	pageHeading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	codeBlock   = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
)

// anchorOf is the anchor that GitHub gives a heading.
func anchorOf(heading string) string {
	return strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

// Every link between the pages leads to a file that is there, and to a heading of it.
func TestLinksOfPages(t *testing.T) {
	texts := pages(t)
	anchors := make(map[string]bool)
	for file, text := range texts {
		for _, m := range pageHeading.FindAllStringSubmatch(codeBlock.ReplaceAllString(text, ""), -1) {
			anchors[file+"#"+anchorOf(m[1])] = true
		}
	}
	links := 0
	for file, text := range texts {
		for _, m := range pageLink.FindAllStringSubmatch(codeBlock.ReplaceAllString(text, ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			path, anchor, hasAnchor := strings.Cut(m[1], "#")
			target := file
			if path != "" {
				target = filepath.Join(filepath.Dir(file), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which is not there", file, m[1])
			} else if hasAnchor && !anchors[target+"#"+anchor] {
				t.Errorf("%s links to %s, where no heading is called so", file, m[1])
			}
		}
	}
	if links < 20 {
		t.Errorf("only %d links were found", links)
	}
}

// Every flag of the server is explained to who operates it, and no other.
func TestFlagsAreDocumented(t *testing.T) {
	help, err := exec.Command(program, "serve", "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	flag := regexp.MustCompile(`--[a-z][a-z-]*[a-z]`)
	there := map[string]bool{
		"--help": true, "--version": true,
		// Of other commands and programs.
		"--alive": true, "--timeout": true, "--repair": true, "--lenient": true, "--skip-unknown": true, "--build": true, "--detach": true,
		"--since": true, "--collection": true, "--key": true, "--checkpoint": true, "--private-key": true, "--public-key": true,
	}
	page := pages(t)["../docs/operating.md"]
	for _, m := range regexp.MustCompile(`(?m)^ +(?:-h, )?(--\S+)`).FindAllStringSubmatch(string(help), -1) {
		name := flag.FindString(strings.ReplaceAll(m[1], "[no-]", "no-"))
		if !there[name] && !regexp.MustCompile(name+`\b[^-]`).MatchString(page) {
			t.Errorf("docs/operating.md does not name %s", name)
		}
		there[name] = true
	}
	for _, name := range flag.FindAllString(page, -1) {
		if !there[name] {
			t.Errorf("docs/operating.md names %s, which no command has", name)
		}
	}
}

// The front page is one that people read.
func TestFrontPageIsShort(t *testing.T) {
	if lines := strings.Count(pages(t)["../README.md"], "\n"); lines > 150 {
		t.Errorf("the README has %d lines, more than 150", lines)
	}
}

// Every source file that design.md names is there: the ways of a read and of a
// write can be followed.
func TestFilesOfTheDesign(t *testing.T) {
	files := regexp.MustCompile("`((?:[a-z0-9]+/)+[a-z0-9_.]+\\.go)`").FindAllStringSubmatch(pages(t)["../docs/design.md"], -1)
	if len(files) < 25 {
		t.Errorf("only %d files were found", len(files))
	}
	for _, m := range files {
		if _, err := os.Stat(filepath.Join("..", m[1])); err != nil {
			t.Errorf("docs/design.md names %s, which is not there", m[1])
		}
	}
}
