package chaos

import "github.com/posthaste-mq/posthaste/internal/history"

// dedupes checks that one message came for each dedupe key, and that every sender that got an
// answer got its id. The dedupe window is longer than a run.
func (c *checker) dedupes() {
	groups := map[string][]*send{}
	for _, s := range c.list {
		if s.queue == Deduped {
			groups[s.key] = append(groups[s.key], s)
		}
	}
	first := func(s *send) *message { return c.of[s][0] }
	for key, sends := range groups {
		var came, told *send
		several := false
		for _, s := range sends {
			if len(first(s).calls) > 0 {
				if came != nil {
					several = true
					c.broken(NotOne, "%s and %s both came under dedupe key %s", first(came).calls[0], first(s).calls[0], key)
				}
				came = s
			}
			if s.answer == history.Sent {
				if told != nil && told.ids[0] != s.ids[0] {
					several = true
					c.broken(NotOne, "%s was told message %s for dedupe key %s, and %s message %s", told.token, told.ids[0], key, s.token, s.ids[0])
				}
				told = s
			}
		}
		if told == nil || several {
			continue
		}
		switch {
		case came == nil || !first(came).handled():
			c.v.Lost++
			c.broken(Lost, "message %s, of which %s was told at %s for dedupe key %s: it was not handled", told.ids[0], told.token, clock(told.to), key)
		case first(came).calls[0].id != told.ids[0]:
			c.broken(Mistaken, "%s, and %s was told message %s for dedupe key %s", first(came).calls[0], told.token, told.ids[0], key)
		}
		for _, s := range sends {
			if s.answer == history.Sent && s != came {
				c.v.Known++
			}
		}
	}
}
