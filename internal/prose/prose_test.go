package prose

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the lower numbers into the baseline")

const (
	root     = "../.."
	baseline = "testdata/baseline.txt"
)

// The number of findings in a directory may fall, and never rise. `go test ./internal/prose
// -update` writes lower numbers down; `-v` lists all findings.
func TestPhrases(t *testing.T) {
	counts := map[string]int{}
	examples := map[string][]string{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)[len(root):]
		name = strings.TrimPrefix(name, "/")
		if d.IsDir() {
			if skipped(name) {
				return fs.SkipDir
			}
			return nil
		}
		if !slices.Contains([]string{".go", ".sql", ".lua", ".md", ".yaml"}, path.Ext(name)) || strings.HasPrefix(name, "internal/prose/") {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		for _, f := range Find(name, text) {
			counts[area(name)]++
			examples[area(name)] = append(examples[area(name)], fmt.Sprintf("%s:%d: %q: %s", name, f.Line, f.Text, f.Rule.Instead))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	held := read(t)
	if *update {
		write(t, counts, held)
		return
	}
	for _, dir := range slices.Sorted(maps.Keys(counts)) {
		switch n, was := counts[dir], held[dir]; {
		case n > was:
			t.Errorf("%s has %d phrases to avoid, %d more than before; some of them:\n%s", dir, n, n-was, strings.Join(changed(examples[dir]), "\n"))
		case n < was:
			t.Errorf("%s has %d phrases to avoid, %d fewer than before: run go test ./internal/prose -update", dir, n, was-n)
		}
		for _, e := range examples[dir] {
			if testing.Verbose() {
				t.Log(e)
			}
		}
	}
}

// skipped says whether a directory is nothing that people of this project wrote.
func skipped(dir string) bool {
	base := path.Base(dir)
	return dir != "" && strings.HasPrefix(base, ".") || dir == "dist" || base == "testdata" || base == "node_modules" || base == "bin" || base == "golden"
}

// area is the directory that a file is counted for: the first, and the first two within
// internal.
func area(name string) string {
	parts := strings.Split(path.Dir(name), "/")
	if parts[0] == "internal" && len(parts) > 1 {
		return parts[0] + "/" + parts[1]
	}
	return parts[0]
}

// changed are examples from files that git says were changed, or else the first few.
func changed(examples []string) []string {
	out, _ := exec.Command("git", "-C", root, "diff", "--name-only", "HEAD~1").Output()
	files := strings.Fields(string(out))
	some := slices.DeleteFunc(slices.Clone(examples), func(e string) bool {
		file, _, _ := strings.Cut(e, ":")
		return !slices.Contains(files, file)
	})
	if len(some) == 0 {
		some = examples
	}
	return some[:min(len(some), 10)]
}

func read(t *testing.T) map[string]int {
	held := map[string]int{}
	text, err := os.ReadFile(baseline)
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var dir string
		var n int
		if _, err := fmt.Sscan(lines.Text(), &dir, &n); err != nil {
			t.Fatalf("%s: %q: %v", baseline, lines.Text(), err)
		}
		held[dir] = n
	}
	return held
}

// write refuses to raise a number. A directory that is new counts with what has gone from
// others.
func write(t *testing.T, counts, held map[string]int) {
	sum := func(m map[string]int) (n int) {
		for _, v := range m {
			n += v
		}
		return n
	}
	for dir, n := range counts {
		if was, known := held[dir]; known && n > was {
			t.Fatalf("%s has %d phrases to avoid, and may have %d", dir, n, was)
		}
	}
	if len(held) > 0 && sum(counts) > sum(held) {
		t.Fatalf("there are %d phrases to avoid, and there may be %d", sum(counts), sum(held))
	}
	var b strings.Builder
	for _, dir := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&b, "%s %d\n", dir, counts[dir])
	}
	if err := os.WriteFile(baseline, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestFind(t *testing.T) {
	for text, want := range map[string]string{
		"Who pauses a key waits.":          "who",
		"It waits, for the row is locked.": "for",
		"What was sent is read anew.":      "what anew",
		"The worker who pauses":            "",
		"behaviour":                        "British",
		"Wait for the lock.":               "",
	} {
		var got []string
		for _, f := range Find("x.md", []byte(text)) {
			got = append(got, f.Rule.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := Find("x.go", []byte("package x\n\n// Nobody waits.\nvar nobody = 1 + `is none`")); len(got) != 2 || got[0].Line != 3 || got[1].Line != 4 {
		t.Errorf("in Go: %+v", got)
	}
}

// A subject says in at most 72 characters what a commit does.
func TestCommitSubjects(t *testing.T) {
	out, err := exec.Command("git", "-C", root, "log", "-30", "--no-merges", "--format=%h %s").Output()
	if err != nil {
		t.Skip("no history here")
	}
	for line := range strings.Lines(string(out)) {
		hash, subject, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n := len([]rune(subject)); n > 72 || strings.HasSuffix(subject, ".") {
			t.Errorf("%s: the subject %q has %d characters, or ends with a full stop", hash, subject, n)
		}
	}
}
