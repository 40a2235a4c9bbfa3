//go:build unix

package documents_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const glossary = "docs/glossary.md"

// productWords are words that a reader of the pages meets and cannot know. The glossary
// explains these and further ones; a page may use none without a way to its meaning.
var productWords = []string{"ack", "at-least-once", "at-most-once", "backoff", "checkpoint", "claim", "cursor", "dead letter",
	"dedupe key", "delivery", "doorbell", "engine", "handler", "heartbeat", "in flight", "inbox", "key", "kind", "lane", "lease", "outbox",
	"parked", "rebase", "receipt", "receiver", "redelivery", "relay", "rescue", "retention", "ring", "set aside", "settle", "sink", "slot",
	"snooze", "source", "story", "subscription", "term", "tick", "unique key", "upkeep", "worker"}

// word is an entry of the glossary.
type word struct {
	name  string
	usage *regexp.Regexp
	// homes are the pages that explain it.
	homes []string
}

var (
	glossaryEntry = regexp.MustCompile(`(?m)^### (.+)\n\n(.+)$`)
	anyLink       = regexp.MustCompile(`\[([^\]]*)\]\(([^)\s#]*)(?:#[^)\s]*)?\)`)
	comment       = regexp.MustCompile(`(?s)<!--.*?-->`)
)

// endings are those of nouns and verbs: claims, claimed, claiming, deliveries.
const endings = `(?:s|es|ed|d|ing|ment|ments)?\b`

// glossaryWords reads the glossary.
func glossaryWords(t *testing.T) (all []word) {
	t.Helper()
	for _, m := range glossaryEntry.FindAllStringSubmatch(read(t, glossary), -1) {
		name := strings.ToLower(m[1])
		usage := regexp.QuoteMeta(name)
		if stem, is := strings.CutSuffix(name, "y"); is {
			usage = regexp.QuoteMeta(stem) + "(?:y|ie)"
		}
		w := word{name: name, usage: regexp.MustCompile(`(?i)\b` + usage + endings)}
		for _, link := range anyLink.FindAllStringSubmatch(m[2], -1) {
			w.homes = append(w.homes, path.Join("docs", link[2]))
		}
		all = append(all, w)
	}
	return all
}

// unexplainedPages lists pages that do not explain their words yet.
const unexplainedPages = "internal/documents/testdata/unexplained.txt"

// TestDR2_WordsAreDefined: a page that uses a word of the product defines it (as a heading or
// in bold), links the word, links to a page that explains it, or links to the glossary. The
// decisions and the pages about the project itself are for developers, and left out. With
// -update, pages that lack a link get one at their end, and no page is excused any more.
func TestDR2_WordsAreDefined(t *testing.T) {
	t.Parallel()
	words := glossaryWords(t)
	for _, name := range productWords {
		if !slices.ContainsFunc(words, func(w word) bool { return w.name == name }) {
			t.Errorf("%s does not explain %q", glossary, name)
		}
	}
	uses, excused := 0, read(t, unexplainedPages)
	for _, file := range documents(t) {
		if !strings.HasPrefix(file, "docs/") || strings.HasPrefix(file, "docs/decisions/") || strings.HasPrefix(file, "docs/project/") || file == glossary {
			continue
		}
		used, missing := unexplained(file, read(t, file), words)
		uses += used
		if len(missing) > 0 && *update {
			linkGlossary(t, file)
		} else if len(missing) > 0 && !strings.Contains(excused, file+"\n") {
			t.Errorf("%s uses words without explaining them; link to %s, or to the pages that explain them: %s", file, glossary, strings.Join(missing, ", "))
		}
	}
	if uses < 300 {
		t.Errorf("only %d words were found on all pages", uses)
	}
	if *update {
		write(t, unexplainedPages, "")
	}
}

// linkGlossary adds a link to the glossary to the end of a page.
func linkGlossary(t *testing.T, file string) {
	t.Helper()
	to, err := filepath.Rel(filepath.Dir(file), glossary)
	if err != nil {
		t.Fatal(err)
	}
	write(t, file, strings.TrimRight(read(t, file), "\n")+"\n\nThe [glossary]("+filepath.ToSlash(to)+") explains the words of this page.\n")
}

// write replaces a document.
func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// unexplained returns how many of the words a page uses, and those that it does not explain.
func unexplained(file, page string, words []word) (used int, missing []string) {
	text := snippet.ReplaceAllString(comment.ReplaceAllString(page, ""), "")
	var links []string
	var linked, defined strings.Builder
	for _, m := range anyLink.FindAllStringSubmatch(text, -1) {
		linked.WriteString(m[1] + "\n")
		if m[2] != "" && !strings.Contains(m[2], "://") {
			links = append(links, path.Join(path.Dir(file), m[2]))
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^#+ .*$|\*\*[^*]+\*\*`).FindAllString(text, -1) {
		defined.WriteString(m + "\n")
	}
	plain := anyLink.ReplaceAllString(text, " ")
	for _, w := range words {
		if !w.usage.MatchString(plain) {
			continue
		}
		used++
		explained := slices.ContainsFunc(append(links, file), func(page string) bool { return page == glossary || slices.Contains(w.homes, page) })
		if !explained && !w.usage.MatchString(linked.String()) && !w.usage.MatchString(defined.String()) {
			missing = append(missing, w.name)
		}
	}
	return used, missing
}

func TestUnexplainedWordsAreFound(t *testing.T) {
	t.Parallel()
	words := []word{{name: "lease", usage: regexp.MustCompile(`(?i)\blease` + endings), homes: []string{"docs/guides/leases.md"}}}
	for page, want := range map[string]int{
		"The lease ends.":                              1,
		"Two leases end.":                              1,
		"Nothing is released.":                         0,
		"The [lease](other.md) ends. A lease is long.": 0,
		"See [here](leases.md). The lease ends.":       0,
		"The lease ends. [Words](../glossary.md)":      0,
		"A **lease** is a time. The lease ends.":       0,
		"`lease` is an option.":                        0,
	} {
		if _, missing := unexplained("docs/guides/x.md", page, words); len(missing) != want {
			t.Errorf("%q: missing %v, want %d", page, missing, want)
		}
	}
}
