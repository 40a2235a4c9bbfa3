package dashboard_test

import (
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// A pause of a kind gets a reason and an end, which the confirmation, the copied commands and all
// pages that tell of the pause contain.
func TestPauseWithReasonAndEnd(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	v := newSite(t, stock).viewer(posthaste.ScopeOperate)
	form := v.get("/queues/emails").form("/kinds/pause")
	form.Values.Set("kind", "charge")
	form.Values.Set("reason", `provider <b>down</b> 'n' "out"`)
	form.Values.Set("for", "1h")
	form.Values.Del("until")
	ask := v.send(form).want(200, "Pause a kind of queue emails", `Reason: provider <b>down</b> 'n' "out"`, "The pause ends by itself at "+time.Now().UTC().Format("2006-01"),
		"--until=20", `"until":"20`, `'--reason=provider <b>down</b> '\''n'\'' "out"'`)
	if strings.Contains(ask.body, "<b>down") {
		t.Error("the reason is not escaped")
	}
	confirmed := ask.form("/kinds/pause")
	v.send(confirmed).want(200, "Paused.", "charge", "since", `provider <b>down</b> 'n' "out"`)
	all, err := stock.Pauses(t.Context(), posthaste.PauseFilter{Queue: "emails"})
	if err != nil || len(all) == 0 || all[0].What != (posthaste.OfKind{Queue: "emails", Kind: "charge"}) || all[0].Reason != `provider <b>down</b> 'n' "out"` || time.Until(all[0].Until) > time.Hour || time.Until(all[0].Until) < 50*time.Minute {
		t.Fatalf("the pauses are %+v, %v", all, err)
	}
	if all[0].Until.Format(time.RFC3339) != confirmed.Values.Get("until") {
		t.Errorf("it ends at %v, and %s was confirmed", all[0].Until, confirmed.Values.Get("until"))
	}
	over := v.get("/").want(200, "kind charge of queue emails since", "until 20", `provider <b>down</b>`)
	if strings.Contains(over.body, "<b>down") {
		t.Error("the reason is not escaped on the overview")
	}
	v.get("/").want(200, "queue halted since", "until it is resumed")
	// The confirmation, reached by a link, asks for both.
	asked := v.get("/queues/orders/pause").want(200, "Without an end it is paused until someone resumes it.").form("/queues/orders/pause")
	asked.Values.Set("reason", "stock is counted")
	asked.Values.Set("for", "soon")
	v.send(asked).want(400, "a duration such as 30m")
	asked.Values.Set("for", "15m")
	v.send(asked).want(200, "Paused", "stock is counted", "until 20")
	v.get("/queues/orders/pause?reason=x&until=2999-01-01").want(400, "36500 days ahead")
	v.get("/queues/orders/pause?reason=x&for=soon").want(400, "a duration such as 30m")
	v.get("/queues/orders/pause?for=1h&until=2040-01-01").want(400, "not both")
	v.get("/queues/orders/pause?until=2020-01-01").want(400, "has passed")
	v.get("/queues/orders/pause?reason="+strings.Repeat("x", 501)).want(413, "at most 500")
}

// A schedule that is paused tells why and until when.
func TestPauseScheduleWithReason(t *testing.T) {
	t.Parallel()
	v := newSite(t, newStock(t)).viewer(posthaste.ScopeOperate)
	v.send(v.get("/schedules/nightly/pause?reason=month+end&for=4h").want(200, "--reason=month end", "Reason: month end").form("/schedules/nightly/pause")).want(200, "month end", "until 20")
}
