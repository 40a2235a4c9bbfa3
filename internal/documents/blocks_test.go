//go:build unix

package documents_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// root is the module's folder.
const root = "../.."

// block is a fenced block of a document.
type block struct {
	file string
	line int
	lang string
	mark string
	text string
	// shows are lines that its output must have.
	shows []string
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.file, b.line) }

var (
	fence = regexp.MustCompile("^```([a-z]*)$")
	mark  = regexp.MustCompile(`^<!-- (.*) -->$`)
)

// read returns a document.
func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// documents are all of them, by their paths from the root.
func documents(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "docs/*/*/*.md"} {
		files, err := fs.Glob(os.DirFS(root), pattern)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, files...)
	}
	if len(found) < 10 {
		t.Fatalf("only %d documents: %v", len(found), found)
	}
	return found
}

// blocks returns the fenced blocks of a document with their expected output.
func blocks(t *testing.T, file string) []block {
	t.Helper()
	var found []block
	var open *block
	marked := ""
	for i, line := range strings.Split(read(t, file), "\n") {
		if open != nil {
			if line != "```" {
				open.text += line + "\n"
				continue
			}
			if open.mark == "shows" {
				if len(found) == 0 {
					t.Fatalf("%s shows the output of nothing", open)
				}
				last := &found[len(found)-1]
				last.shows = append(last.shows, strings.Split(strings.TrimSpace(open.text), "\n")...)
			} else {
				found = append(found, *open)
			}
			open = nil
			continue
		}
		if m := fence.FindStringSubmatch(line); m != nil {
			open = &block{file: file, line: i + 1, lang: m[1], mark: marked}
		}
		marked = ""
		if m := mark.FindStringSubmatch(line); m != nil {
			marked = m[1]
		}
	}
	if open != nil {
		t.Fatalf("%s is never closed", open)
	}
	return found
}

var marks = regexp.MustCompile(`^(run: (up|after up|after up, until it shows|psql|on a database)` +
	`|run: after up, at night|run: (up|after up), with a broker|run: after up, with a broker, until it shows|quote: .+|run by: .+|not run: .+)$`)

// typed is a line that a reader types into a shell.
var typed = regexp.MustCompile(`(?m)^(posthaste|curl|export|psql|go|npm|docker|kubectl) `)

// Each block says how it is run, or why it is not.
func TestEveryBlockIsMarked(t *testing.T) {
	t.Parallel()
	for _, file := range documents(t) {
		for _, b := range blocks(t, file) {
			switch {
			case b.mark != "" && !marks.MatchString(b.mark):
				t.Errorf("%s: no such mark: %s", b, b.mark)
			case b.mark == "" && b.lang == "text" && typed.MatchString(b.text):
				t.Errorf("%s: commands in a block of text: make it one of sh, and say whether it is run", b)
			case b.mark == "" && b.lang != "text" && b.lang != "mermaid":
				t.Errorf("%s: a block of %q without a mark: say whether it is run", b, b.lang)
			case strings.HasPrefix(b.mark, "run: ") && b.mark != "run: psql" && !slices.Contains(runPages(t), file):
				t.Errorf("%s: commands run in README.md, docs/start and docs/leaving.md only", b)
			}
		}
	}
}

// Quoted programs are equal to the tested ones.
func TestQuotesEqualTheirFiles(t *testing.T) {
	t.Parallel()
	quotes := 0
	for _, file := range documents(t) {
		for _, b := range blocks(t, file) {
			if quoted, ok := strings.CutPrefix(b.mark, "quote: "); ok {
				quoted, _, _ = strings.Cut(quoted, savedAs)
				quotes++
				if read(t, quoted) != b.text {
					t.Errorf("%s differs from %s", b, quoted)
				}
			}
			if runner, ok := strings.CutPrefix(b.mark, "run by: "); ok {
				for _, command := range strings.Split(strings.TrimSpace(b.text), "\n") {
					if !strings.Contains(read(t, runner), "\n"+command+"\n") {
						t.Errorf("%s: %s does not run %q", b, runner, command)
					}
				}
			}
		}
	}
	if quotes == 0 {
		t.Error("nothing is quoted; the quickstart in Go has quoted an example")
	}
}

var (
	link = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	// snippet is a block of code, or code within a line, where a type argument looks like a link.
	snippet = regexp.MustCompile("(?ms)^```.*?^```$|`[^`\n]*`")
)

// TestLinksLeadSomewhere: every relative link is a file or folder that is there.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	links := 0
	for _, file := range documents(t) {
		for _, m := range link.FindAllStringSubmatch(snippet.ReplaceAllString(read(t, file), ""), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			links++
			to := filepath.Join(filepath.Dir(file), target)
			if target == "" {
				to = file
			}
			if anchor != "" && !slices.Contains(anchors(t, to), anchor) {
				t.Errorf("%s: %s has no heading #%s", file, to, anchor)
			}
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(file), target)); err != nil {
				t.Errorf("%s: the link %s leads nowhere", file, m[1])
			}
		}
	}
	if links == 0 {
		t.Error("no links found")
	}
}

var (
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	unspoken = regexp.MustCompile(`[^a-z0-9 _-]`)
	// former is a heading's earlier name, for links from elsewhere.
	former = regexp.MustCompile(`(?m)^<a id="([a-z0-9_-]+)"></a>$`)
)

// anchors are the headings of a document, and their earlier names, as links name them.
func anchors(t *testing.T, file string) []string {
	t.Helper()
	var found []string
	for _, m := range heading.FindAllStringSubmatch(read(t, file), -1) {
		found = append(found, strings.ReplaceAll(unspoken.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	for _, m := range former.FindAllStringSubmatch(read(t, file), -1) {
		found = append(found, m[1])
	}
	return found
}

var (
	named       = regexp.MustCompile("`([a-z]+/[A-Za-z0-9_./-]+)`")
	placeholder = regexp.MustCompile(`name|resource|NNNN`)
)

// TestFilesThatAreNamedAreThere: what the documents for those who change the
// code call by its path is there.
func TestFilesThatAreNamedAreThere(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"ARCHITECTURE.md", "CONTRIBUTING.md"} {
		checked := 0
		for _, m := range named.FindAllStringSubmatch(read(t, file), -1) {
			if placeholder.MatchString(m[1]) {
				continue
			}
			checked++
			if _, err := os.Stat(filepath.Join(root, m[1])); err != nil {
				t.Errorf("%s names %s, which is not there", file, m[1])
			}
		}
		if checked < 5 {
			t.Errorf("%s names only %d files", file, checked)
		}
	}
}

// TestTestsThatAreNamedAreThere: what the comparison and the failures say is shown by a test is.
func TestTestsThatAreNamedAreThere(t *testing.T) {
	t.Parallel()
	var code strings.Builder
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && len(path) > 1 && path[0] == '.' {
			return fs.SkipDir
		}
		if err == nil && (strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "enginetest/") && strings.HasSuffix(path, ".go")) {
			code.WriteString(read(t, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for page, least := range map[string]int{"docs/explanation/comparison.md": 40, "docs/failures.md": 10} {
		checkNamedTests(t, page, least, code.String())
	}
}

// checkNamedTests checks that code has each test that the table of a page names, and that each row
// names one.
func checkNamedTests(t *testing.T, page string, least int, code string) {
	t.Helper()
	_, table, _ := strings.Cut(read(t, page), "| shown by |")
	checked := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || strings.HasPrefix(cells[1], "---") {
			continue
		}
		names := regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[3], -1)
		if len(names) == 0 {
			t.Errorf("%s: no test shows %q", page, cells[1])
		}
		for _, m := range names {
			checked++
			if !strings.Contains(code, "func "+m[1]+"(") && !strings.Contains(code, `{name: "`+m[1]+`"`) {
				t.Errorf("%s names the test %s, which is not there", page, m[1])
			}
		}
	}
	if checked < least {
		t.Errorf("%s names only %d tests", page, checked)
	}
}
