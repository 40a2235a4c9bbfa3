package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// watchedBy returns what a watch prints until it has shown something n times and is interrupted.
func watchedBy(t *testing.T, a *app, n int, show func(i int) error) (stdout, stderr string, err error) {
	t.Helper()
	var out, errs bytes.Buffer
	a.stdout, a.stderr = &out, &errs
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	i := 0
	err = a.watch(ctx, time.Millisecond, "every 1ms: posthaste x", func() error {
		i++
		if i == n {
			interrupt()
		}
		return show(i)
	})
	return out.String(), errs.String(), err
}

// numbers is a list whose content is the number of the round.
func numbers(a *app) func(int) error {
	return func(i int) error {
		return page{shown: []int{i}, next: 7}.print(a, 1, func(w *screen) { fmt.Fprintf(w, "round %d\n", i) })
	}
}

// An output that is no terminal gets one document after the other.
func TestWatchedDocuments(t *testing.T) {
	t.Parallel()
	for f, want := range map[format]string{
		asTable: "round 1\n\nround 2\n",
		asJSON:  `{"data":[1],"next":"7","has_more":true}` + "\n" + `{"data":[2],"next":"7","has_more":true}` + "\n",
		asJSONL: "1\n2\n",
		asYAML:  "data:\n  - 1\nnext: \"7\"\nhas_more: true\n---\ndata:\n  - 2\nnext: \"7\"\nhas_more: true\n",
	} {
		a := &app{output: f}
		stdout, stderr, err := watchedBy(t, a, 2, numbers(a))
		if stdout != want || stderr != "… more: --before 7\n… more: --before 7\n" || err != nil {
			t.Errorf("%s: %q and %q, %v, want %q", f, stdout, stderr, err, want)
		}
	}
}

// A terminal is redrawn, with the hint for the next page, and cleared only once.
func TestWatchedOnATerminal(t *testing.T) {
	t.Parallel()
	for f, want := range map[format]string{asTable: "round 2\x1b[K\n… more: --before 7\x1b[K\n\x1b[J", asYAML: "data:\x1b[K\n  - 2\x1b[K\nnext: \"7\"\x1b[K\nhas_more: true\x1b[K\n… more: --before 7\x1b[K\n\x1b[J"} {
		a := &app{output: f, terminal: func() bool { return true }}
		stdout, stderr, err := watchedBy(t, a, 2, numbers(a))
		if strings.Count(stdout, clearScreen) != 1 || strings.Count(stdout, toTop) != 2 || strings.Count(stdout, wrapOff) != strings.Count(stdout, wrapOn) ||
			!strings.Contains(stdout, want) || strings.Contains(stdout, "---") || stderr != "" || err != nil {
			t.Errorf("%s: %q and %q, %v", f, stdout, stderr, err)
		}
		if !strings.Contains(stdout, "every 1ms: posthaste x    20") {
			t.Errorf("%s has no title: %q", f, stdout)
		}
	}
}

// A store that is away for a while does not end a watch. Another error does, and so does any at
// the first time.
func TestWatchAndErrors(t *testing.T) {
	t.Parallel()
	away := &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "the store is away"}
	a := &app{}
	stdout, stderr, err := watchedBy(t, a, 3, func(i int) error {
		if i == 2 {
			return away
		}
		return numbers(a)(i)
	})
	if err != nil || !strings.Contains(stdout, "round 3") || !strings.Contains(stderr, "the store is away") {
		t.Errorf("away for a while: %q and %q, %v", stdout, stderr, err)
	}
	if _, _, err := watchedBy(t, &app{}, 3, func(int) error { return away }); !errors.Is(err, away) {
		t.Errorf("away at the start: %v", err)
	}
	gone := &posthaste.Error{Code: posthaste.CodeNotFound, Message: "not found"}
	for _, terminal := range []bool{false, true} {
		a := &app{terminal: func() bool { return terminal }}
		if _, _, err := watchedBy(t, a, 9, func(i int) error {
			if i == 2 {
				return gone
			}
			return nil
		}); !errors.Is(err, gone) {
			t.Errorf("on a terminal %v, gone after a while: %v", terminal, err)
		}
	}
	if _, _, err := watchedBy(t, &app{}, 1, func(int) error { return context.Canceled }); err != nil {
		t.Errorf("interrupted in a read: %v", err)
	}
}

// What does not fit on a terminal is cut and counted.
func TestFitting(t *testing.T) {
	t.Parallel()
	lines := []string{"a", "b", "c", "d", "e"}
	for height, want := range map[int][]string{0: lines, 2: lines, 6: lines, 5: {"a", "b", "c", "… 2 more lines"}, 3: {"a", "… 4 more lines"}} {
		if got := fitting(slices.Clone(lines), height); !slices.Equal(got, want) {
			t.Errorf("height %d: %q, want %q", height, got, want)
		}
	}
}

func TestWatchFlags(t *testing.T) {
	t.Parallel()
	s := &session{T: t}
	s.refuses("queue ls --interval 5s", "--interval has no effect without --watch")
	s.refuses("message show 1 --watch --interval 1ms", "--interval must be at least 100ms, got 1ms")
}
