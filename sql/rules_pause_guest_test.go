package ledger_test

import (
	"fmt"
	"slices"
	"testing"
)

// A paused key is also paused for later subscriptions, whichever of pausing and subscribing is in
// progress when the other begins.
func TestRulePausedKeysWaitForLaterSubscriptions(t *testing.T) {
	rule(t, func(t *testing.T, url string) string {
		s := keyed(t, url, `{"fair": true, "lanes": 2}`)
		other, late := connect(t, url), connect(t, url)
		read := func(subscription string) []string {
			return list[string](s, `select key from posthaste.receive('q', 10, '1 hour', jsonb_build_object('subscription', $1::text)) order by 1`, subscription)
		}
		both := []string{"a", "b"}
		for _, key := range both {
			s.sendKey(key)
		}
		s.exec(`select posthaste.pause_key('q', 'a')`)
		s.exec(`select posthaste.subscribe('q', 'after', '{"from": "oldest"}')`)
		if got := read("after"); !slices.Equal(got, []string{"b"}) {
			return fmt.Sprintf("made after the key was paused, it got %v", got)
		}
		s.exec(`select posthaste.resume_key('q', 'a')`)
		if got := read("after"); !slices.Equal(got, []string{"a"}) {
			return fmt.Sprintf("of the key that was resumed it got %v", got)
		}
		other.exec(`begin`)
		other.exec(`select posthaste.subscribe('q', 'before', '{"from": "oldest"}')`)
		paused := late.start(`select posthaste.pause_key('q', 'a')::int::bigint`)
		late.blocked(s)
		other.exec(`commit`)
		if a := <-paused; a.err != nil {
			t.Fatal(a.err)
		}
		if got := read("before"); !slices.Equal(got, []string{"b"}) {
			return fmt.Sprintf("being made as the key was paused, it got %v", got)
		}
		other.exec(`begin`)
		other.exec(`select posthaste.pause_key('q', 'c')`)
		s.sendKey("c")
		made := late.start(`select 1::bigint from posthaste.subscribe('q', 'beside', '{"from": "oldest"}')`)
		late.blocked(s)
		other.exec(`commit`)
		if a := <-made; a.err != nil {
			t.Fatal(a.err)
		}
		if got := read("beside"); !slices.Equal(got, []string{"b"}) {
			return fmt.Sprintf("made as keys were being paused, it got %v", got)
		}
		return ""
	}, without("copying paused keys", patch{file: "subscribe.sql", old: "k.paused_at is not null\n", new: "false\n"}))
}
