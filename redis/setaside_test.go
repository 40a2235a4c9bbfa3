package redis

import (
	"slices"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// Messages that were set aside are found among other kinds, and their workers are woken.
func TestR1_SetAsideIsFound(t *testing.T) {
	runKindRules(t, map[string]kindRule{
		"among many kinds": {posthaste.QueueOptions{}, func(k *kindred) string {
			k.sentAside("a", "b", "c", "sms")
			return unlessOne(k.claim(k.handles("sms"), 1))
		}, []patch{{&claimScript, "(n > #kinds or here[kind])", "here[kind]"}}},
		"of all kinds in one claim": {posthaste.QueueOptions{}, func(k *kindred) string {
			k.sentAside("a", "b", "c", "d")
			got := came(k.claim(register(k.t, k.e), 4))
			return unless(slices.Equal(got, []string{"a", "b", "c", "d"}), "%v were handed out", got)
		}, []patch{{&claimScript, ", {'[' .. rank, '(' .. at}}", "}"}}},
		"setting aside wakes": {posthaste.QueueOptions{}, func(k *kindred) string {
			k.send("sms")
			held := k.claim(k.old, 1)
			return unlessRung(k.t, k.e, func() { k.aside(held...) })
		}, []patch{{&settleScript, "  wake = true\n  return outcome, due", "  return outcome, due"}}},
	})
}

// A message that was set aside and must run alone is the only one of its claim.
func TestR1_SetAsideRunsAlone(t *testing.T) {
	both := func(k *kindred) []posthaste.RawDelivery {
		k.t.Helper()
		k.number++
		reply, err := k.e.Claim(k.t.Context(), posthaste.ClaimRequest{Worker: k.handles("sms", "mail"), Number: k.number, QueueRef: posthaste.QueueRef{Queue: jobs}, Max: 10, AllowAlone: true})
		k.must(err)
		return reply.Deliveries
	}
	runKindRules(t, map[string]kindRule{
		"beside others": {posthaste.QueueOptions{}, func(k *kindred) string {
			k.loneAside()
			k.send("mail")
			return unlessOne(both(k))
		}, []patch{{&claimScript, "if #deliveries == 0 then\n  local others", "if true then\n  local others"}}},
		"beside another one": {posthaste.QueueOptions{}, func(k *kindred) string {
			k.loneAside()
			k.lone()
			return unlessOne(both(k))
		}, []patch{{&claimScript, "if apart and #deliveries == 0 and wants == '' and", "if apart and wants == '' and"}}},
		"one that is too old expires once": {posthaste.QueueOptions{MaxAge: time.Hour}, func(k *kindred) string {
			k.age(k.loneAside())
			if said := unlessNone(both(k)); said != "" {
				return said
			}
			s := infoOf(k.t, k.e, posthaste.DefaultSubscription)
			return unless(s.Expired == 1 && s.Depth == 0, "it counts %+v", s)
		}, []patch{{&claimScript, "if gone then leftApart({first}) end", ""}}},
	})
}
