package browsertest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/posthaste-mq/posthaste/internal/memory"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// shots is where screenshots are kept, for people to look at.
const shots = "../../dist/screenshots"

// axe is the script that finds faults of accessibility.
func axe(t *testing.T) string {
	t.Helper()
	sums, err := os.ReadFile("testdata/axe/SHA256SUMS")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(sums)) {
		want, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		content, err := os.ReadFile("testdata/axe/" + name)
		if sum := sha256.Sum256(content); err != nil || hex.EncodeToString(sum[:]) != want {
			t.Fatalf("%s has the checksum %x, want %s (%v)", name, sum, want, err)
		}
	}
	script, err := os.ReadFile("testdata/axe/axe.min.js")
	if err != nil {
		t.Fatal(err)
	}
	return string(script)
}

// accessible fails if axe-core finds something on the page.
func (b *tab) accessible(script, what string) {
	b.Helper()
	if known, _ := b.ask("!!globalThis.axe"); known != "true" {
		b.do(chromedp.Evaluate[chromedp.Void](script))
	}
	var found []struct {
		ID, Impact, Help string
		Nodes            []struct{ HTML, FailureSummary string }
	}
	b.answer(`axe.run({resultTypes: ["violations"]}).then(r => r.violations)`, &found)
	for _, v := range found {
		for _, node := range v.Nodes {
			b.Errorf("%s: %s (%s): %s\n%s\n%s", what, v.ID, v.Impact, v.Help, node.HTML, node.FailureSummary)
		}
	}
}

// fits fails if the page is wider than the screen, and names the elements that are.
func (b *tab) fits(s screen, what string) {
	b.Helper()
	var got struct {
		Width int64
		Wide  []string
	}
	b.answer(fmt.Sprintf(`{Width: Math.max(document.documentElement.scrollWidth, innerWidth), Wide: [...document.body.querySelectorAll("*")]
		.filter(e => e.getBoundingClientRect().right > %d && e.checkVisibility() && !e.closest(".scroll, nav, pre, .skip"))
		.map(e => e.outerHTML.slice(0, 200))}`, s.width), &got)
	if got.Width > s.width || len(got.Wide) > 0 {
		b.Errorf("%s is %d pixels wide, with %q", what, got.Width, got.Wide)
	}
}

// shoot keeps a screenshot of the whole page.
func (b *tab) shoot(name string, s screen, colors scheme) {
	b.Helper()
	picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err == nil {
		err = os.WriteFile(filepath.Join(shots, fmt.Sprintf("%s-%d-%s.png", name, s.width, colors)), picture, 0o600)
	}
	if err != nil {
		b.Fatal(err)
	}
}

// Every page is accessible and fits the screen, with all that can be opened on it.
func TestDB8_PagesAreAccessibleAndFit(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.work()
	f := s.fill(plain)
	seen := s.examine("", []string{"/queues/orders", "/messages/" + f.dead.String(), "/messages/" + f.scheduled.String() + "/cancel", "/search?q=order-10042"})
	for _, shape := range []string{"overview", "queues", "queues-x", "queues-x-pause", "queues-x-purge", "queues-x-send", "messages", "messages-1", "messages-1-replay", "messages-1-cancel",
		"dead-letters", "dead-letters-replay", "schedules", "schedules-x-run", "workers", "audit", "tokens", "tokens-x-revoke", "search"} {
		if !seen[shape] {
			t.Errorf("no link leads to a page %s", shape)
		}
	}
}

// So are the pages of a store that is empty.
func TestDB8_EmptyPages(t *testing.T) {
	testrun.Nightly(t, "TestDB8_PagesAreAccessibleAndFit looks at the same pages with content")
	t.Parallel()
	s := &shop{T: t, url: serve(t, memory.Open())}
	if seen := s.examine("empty-", []string{"/search?q=order-10042"}); !seen["schedules"] || !seen["tokens"] {
		t.Errorf("links lead to %v only", seen)
	}
}

// examine looks at all pages of a shop, and returns their shapes. The names of screenshots begin
// with a prefix.
func (s *shop) examine(prefix string, first []string) map[string]bool {
	s.Helper()
	script := axe(s.T)
	looks := []struct {
		screen
		scheme
	}{{wide, light}, {narrow, dark}}
	if testrun.Night() {
		looks = append(looks, looks[0], looks[1])
		looks[2].scheme, looks[3].scheme = dark, light
		s.must(os.MkdirAll(shots, 0o755))
	}
	b := newTab(s.T)
	look := func(shape string) {
		for _, l := range looks {
			b.look(l.screen, l.scheme)
			b.leaves(func() { b.do(chromedp.Reload()) })
			b.do(chromedp.Evaluate[chromedp.Void](`for (const d of document.querySelectorAll("details")) d.open = true`))
			what := fmt.Sprintf("%s at %d pixels, %s", shape, l.width, l.scheme)
			b.fits(l.screen, what)
			b.accessible(script, what)
			if testrun.Night() {
				b.shoot(prefix+shape, l.screen, l.scheme)
			}
		}
	}
	b.open(s.url + "/")
	look("sign-in")
	s.enter(b)
	b.open(s.url + "/nothing")
	look("not-found")
	b.heard() // the console has the status
	return s.visit(b, first, look)
}
