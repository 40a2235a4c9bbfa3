package dashboard_test

import (
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// The form of a queue's options changes those that differ, after a confirmation of the differences.
func TestDB7ChangeOptions(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	s := newSite(t, stock)
	v := s.viewer(posthaste.ScopeAdmin)
	options := func() posthaste.QueueOptions {
		queues, err := stock.Store.Queues(t.Context(), "emails")
		if err != nil {
			t.Fatal(err)
		}
		return queues[0].Options
	}
	was := options()
	page := v.follow(v.get("/queues/emails"), "Change options")
	form := page.form("/update")
	v.send(form).want(400, "Nothing would change")
	form.Values.Set("max_attempts", "7")
	form.Values.Set("timeout", "90s")
	form.Values.Set("retention", "48h")
	form.Values.Set("retain_payload", "true")
	ask := v.send(form).want(200, "max_attempts: 20 → 7", "timeout: 30s → 1m30s", "retention: none → 48h0m0s", "retain_payload: false → true",
		"posthaste queue update emails --max-attempts=7 --timeout=1m30s --retention=48h0m0s --retain-payload=true", `"max_attempts":7`).lacks("backoff")
	v.send(ask.form("/update")).want(200, "The next deliveries follow the new options.", "max_attempts 7")
	if is := options(); is.MaxAttempts != 7 || is.Timeout != 90*time.Second || is.Retention != 48*time.Hour || !is.RetainPayload || is.BackoffMax != was.BackoffMax {
		t.Errorf("%+v", is)
	}

	// An empty field is the default again.
	form = v.get("/queues/emails/options").form("/update")
	form.Values.Set("max_attempts", "")
	form.Values.Set("retention", "")
	form.Values.Set("retain_payload", "false")
	ask = v.send(form).want(200, "max_attempts: 7 → 20", "retention: 48h0m0s → none", "removed for good", "--retention=none")
	confirm := ask.form("/update")
	if err := stock.UpdateQueue(t.Context(), "emails", posthaste.QueueUpdate{Options: posthaste.QueueOptions{MaxAttempts: 9}}); err != nil {
		t.Fatal(err)
	}
	v.send(confirm).want(409, "Nothing was changed: old value was confirmed as")
	v.send(v.send(form).form("/update")).want(200)
	if is := options(); is.MaxAttempts != was.MaxAttempts || is.Retention != 0 || is.RetainPayload || is.Timeout != 90*time.Second {
		t.Errorf("%+v", is)
	}
	for name, value := range map[string]string{"max_attempts": "0", "timeout": "soon", "lanes": "100", "retain_payload": "perhaps", "rate_limit": "fast", "backoff.base": "-1s", "max_payload": "1e9"} {
		form := v.get("/queues/emails/options").form("/update")
		form.Values.Set(name, value)
		if got := v.send(form); got.status != 400 {
			t.Errorf("%s = %q: status %d:\n%s", name, value, got.status, text(got.body))
		}
	}
	v.get("/audit").want(200, "http:adminer update emails")
}

// A kind is paused and resumed where the queue does not look at keys.
func TestDB7PauseKind(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	v := newSite(t, stock).viewer(posthaste.ScopeOperate)
	id := stock.send(t, posthaste.Message{Queue: "emails", Kind: "charge <b>", Payload: 1})[0]
	form := v.get("/queues/emails").want(200, "No kind is paused.").form("/kinds/pause")
	form.Values.Set("kind", "charge <b>")
	ask := v.send(form).want(200, "Kind: charge <b>", "posthaste queue pause-kind -- emails 'charge <b>'", "neither new ones nor retries")
	paused := v.send(ask.form("/kinds/pause")).want(200, "Paused.", "Paused kinds charge <b>")
	v.get("/messages/"+id.String()).want(200, "Its kind is paused.")
	resume := v.follow(paused, "Resume").want(200, "Waiting messages of this kind are handed out again.")
	v.send(resume.form("/kinds/resume")).want(200, "Resumed.", "No kind is paused.")
	v.get("/queues/orders").lacks("Pause kind") // it looks at keys
	v.get("/queues/orders/kinds/pause?kind=x").want(400, "its kinds cannot be paused", "Pause the whole queue.")
	v.get("/audit").want(200, "http:operateer pause_kind emails")
}
