package server

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// 409 names each that was no longer the caller's; the others are settled.
func TestDS7SettlingTwiceOverHTTP(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.queue("orders")
	a.sendSome(3)
	var got []wire.Delivery
	a.call("POST", "/v1/queues/orders/receive", `{"max":3}`).want(t, 200).items(t, &got)
	first, second, third := got[0].ID.String(), got[1].ID.String(), got[2].ID.String()
	a.call("POST", "/v1/deliveries/ack", `{"deliveries":[{"id":"`+first+`"}]}`).want(t, 200)

	p := a.call("POST", "/v1/deliveries/fail", fmt.Sprintf(`{"deliveries":[{"id":"%s","error":"x"},{"id":"%s","error":"y","permanent":true},{"id":"99999","error":"z"}]}`, first, second)).
		wantProblem(t, 409, posthaste.CodeConflict, "deliveries")
	if !slices.Equal(p.IDs, []string{first, "99999"}) || len(p.Deliveries) != 3 || p.Deliveries[0].Settled || !p.Deliveries[1].Settled || p.Deliveries[1].Outcome != posthaste.OutcomeDead {
		t.Fatalf("%+v", p)
	}
	for _, action := range []string{"ack", "release"} {
		p := a.call("POST", "/v1/deliveries/"+action, `{"deliveries":[{"id":"`+second+`"}]}`).wantProblem(t, 409, posthaste.CodeConflict, "deliveries")
		if !slices.Equal(p.IDs, []string{second}) {
			t.Fatalf("%+v", p)
		}
	}
	p = a.call("POST", "/v1/deliveries/extend", `{"deliveries":[{"id":"`+second+`","lease":"1m"},{"id":"`+third+`","lease":"2m"}]}`).wantProblem(t, 409, posthaste.CodeConflict, "deliveries")
	if !slices.Equal(p.IDs, []string{second}) {
		t.Fatalf("%+v", p)
	}
	for id, want := range map[posthaste.MessageID]posthaste.State{got[0].MessageID: posthaste.StateDone, got[1].MessageID: posthaste.StateDead, got[2].MessageID: posthaste.StateRunning} {
		var m wire.Message
		a.call("GET", "/v1/messages/"+id.String(), "").want(t, 200).into(t, &m)
		if m.Subscriptions[0].State != want {
			t.Errorf("message %s is %s instead of %s", id, m.Subscriptions[0].State, want)
		}
	}
}

// The engine gets the settlements that the caller requested.
func TestSettlementsAsAsked(t *testing.T) {
	t.Parallel()
	var asked []posthaste.Settlement
	a := newAPI(t, func(_ *Config, h *hooked) {
		h.settle = func(_ context.Context, s []posthaste.Settlement) ([]posthaste.SettleResult, error) {
			asked = s
			results := make([]posthaste.SettleResult, len(s))
			for i := range s {
				results[i] = posthaste.SettleResult{Delivery: s[i].Delivery, Settled: true, Outcome: s[i].Outcome}
			}
			if s[0].Error == "refuse" {
				results[0] = posthaste.SettleResult{Delivery: s[0].Delivery, Err: posthaste.Invalidf("receipt", "not so")}
			}
			return results, nil
		}
	})
	for _, c := range []struct{ action, delivery, want string }{
		{"ack", `{"id":"7"}`, `{7 done  0s  [] 0s}`},
		{"ack", `{"id":"7","receipt":{"a":[1]}}`, `{7 done  0s {"a":[1]} [] 0s}`},
		{"ack", `{"id":"7","receipt":null}`, `{7 done  0s  [] 0s}`},
		{"ack", `{"id":"7","terms":["a b","c"]}`, `{7 done  0s  [a b c] 0s}`},
		{"fail", `{"id":"7","error":"no","terms":["a"]}`, `{7 retried no 0s  [a] 0s}`},
		{"fail", `{"id":"7","error":"no"}`, `{7 retried no 0s  [] 0s}`},
		{"fail", `{"id":"7","error":"no","retry_after":"1.5h","permanent":false}`, `{7 retried no 1h30m0s  [] 0s}`},
		{"fail", `{"id":"7","error":"no","retry_after":"0s"}`, `{7 retried no 1µs  [] 0s}`}, // and not the queue's backoff
		{"fail", `{"id":"7","error":"no","permanent":true,"receipt":"x"}`, `{7 dead no 0s "x" [] 0s}`},
		{"release", `{"id":"7"}`, `{7 released  0s  [] 0s}`},
		{"release", `{"id":"7","after":"1h"}`, `{7 released  1h0m0s  [] 0s}`},
	} {
		a.call("POST", "/v1/deliveries/"+c.action, `{"deliveries":[`+c.delivery+`]}`).want(t, 200)
		if got := fmt.Sprintf("%s", asked); got != "["+c.want+"]" {
			t.Errorf("%s %s: %s", c.action, c.delivery, got)
		}
	}
	p := a.call("POST", "/v1/deliveries/fail", `{"deliveries":[{"id":"7","error":"refuse"},{"id":"8","error":"x"}]}`).wantProblem(t, 400, posthaste.CodeInvalid, "receipt")
	if !slices.Equal(p.IDs, []string{"7"}) || p.Deliveries[0].Error == "" || !p.Deliveries[1].Settled {
		t.Errorf("%+v", p)
	}
}

// A call extends deliveries with the same lease together. The answer tells which notes are recorded
// although others fail, so that the caller does not send their log lines again.
func TestExtendingFailsForSomeOnly(t *testing.T) {
	t.Parallel()
	a := newAPI(t, func(_ *Config, h *hooked) {
		h.extend = func(ctx context.Context, req posthaste.ExtendRequest) ([]posthaste.SettleResult, error) {
			if req.Lease >= time.Hour {
				return nil, &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "away"}
			}
			return h.Store.Extend(ctx, req)
		}
	})
	a.queue("orders")
	a.sendSome(2)
	var got []wire.Delivery
	a.call("POST", "/v1/queues/orders/receive", `{"max":2}`).want(t, 200).items(t, &got)
	first, second := got[0].ID.String(), got[1].ID.String()
	p := a.call("POST", "/v1/deliveries/extend", `{"deliveries":[{"id":"`+first+`","log":"line","lease":"1m"},{"id":"`+second+`","lease":"1h"}]}`).
		wantProblem(t, 503, posthaste.CodeUnavailable, "")
	if !slices.Equal(p.IDs, []string{second}) || len(p.Deliveries) != 2 || !p.Deliveries[0].Settled || p.Deliveries[1].Settled {
		t.Errorf("%+v", p)
	}
	p = a.call("POST", "/v1/deliveries/extend", `{"deliveries":[{"id":"`+first+`","log":"line","lease":"1h"},{"id":"`+second+`","lease":"2h"}]}`).
		wantProblem(t, 503, posthaste.CodeUnavailable, "")
	if len(p.Deliveries) != 0 {
		t.Errorf("after nothing was done: %+v", p)
	}
}

// A delivery tells after how many attempts of its kind the message is dead.
func TestReceivedAttemptsOfAKind(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.call("PUT", "/v1/queues/orders", `{"max_attempts":5,"kinds":{"sms":{"max_attempts":3}}}`).want(t, 201)
	for _, m := range []string{`{"payload":1,"kind":"sms"}`, `{"payload":2}`} {
		a.call("POST", "/v1/queues/orders/messages", m).want(t, 201)
	}
	var got []wire.Delivery
	a.call("POST", "/v1/queues/orders/receive", `{"max":2}`).want(t, 200).items(t, &got)
	for _, d := range got {
		if want := map[string]int{"sms": 3, "": 5}[d.Kind]; d.MaxAttempts != want {
			t.Errorf("a message of kind %q has %d attempts, want %d", d.Kind, d.MaxAttempts, want)
		}
	}
	if len(got) != 2 {
		t.Errorf("received %+v", got)
	}
}
