//go:build unix

package acceptance

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
	"github.com/posthaste-mq/posthaste/server"
)

// Operators' actions on queues over HTTP take effect, are visible, and are recorded with the
// name of the token.
func TestOperatorsOverHTTP(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	token, err := server.NewToken("ops", "a-secret-of-some-length-0123456789", server.ScopeAdmin)
	s.must(err)
	a := s.serve(s.engine, func(c *server.Config) { c.Tokens = []posthaste.Token{token} })
	ask := func(status int, method, path, body string, into any) {
		t.Helper()
		got := a.want(status, method, path, body, "Authorization", "Bearer a-secret-of-some-length-0123456789")
		if into != nil {
			if reflect.TypeOf(into).Elem().Kind() == reflect.Slice {
				got.body = got.entries(t)
			}
			s.must(json.Unmarshal(got.body, into))
		}
	}
	// Each option is as requested, and repeating the request changes nothing.
	for name, options := range map[string]string{
		"in-order": `{"ordered":true,"on_dead":"stop","retention":"1h0m0s","max_attempts":3}`,
		"by-turns": `{"fair":true,"key_concurrency":3,"key_rate_limit":{"limit":10,"per":"1m0s","burst":3}}`,
		"once":     `{"mode":"at_most_once","rate_limit":{"limit":1000,"per":"1s","burst":50}}`,
		"orders":   `{"lanes":2,"timeout":"1m30s","concurrency":5,"backoff":{"base":"100ms","max":"1m0s"},"max_payload":1000}`,
	} {
		var made, again struct {
			Options map[string]any `json:"options"`
		}
		var asked map[string]any
		s.must(json.Unmarshal([]byte(options), &asked))
		ask(201, "PUT", "/v1/queues/"+name, options, &made)
		ask(200, "PUT", "/v1/queues/"+name, options, &again)
		for option, want := range asked {
			want, _ := json.Marshal(want)
			is, _ := json.Marshal(made.Options[option])
			still, _ := json.Marshal(again.Options[option])
			if string(is) != string(want) || string(still) != string(want) {
				t.Errorf("%s: %s is %s, and %s when asked again; want %s", name, option, is, still, want)
			}
		}
	}
	// Limits are replaced as a whole.
	var queue wire.Queue
	ask(200, "PUT", "/v1/queues/orders/limits", `{"rate_limit":{"limit":1000,"per":"1s","burst":70}}`, &queue)
	rate, _ := json.Marshal(queue.Options["rate_limit"])
	if queue.Options["concurrency"] != nil || string(rate) != `{"burst":70,"limit":1000,"per":"1s"}` {
		t.Errorf("limits are %+v", queue.Options)
	}
	var none wire.Queue
	if ask(200, "PUT", "/v1/queues/orders/limits", `{}`, &none); none.Options["rate_limit"] != nil {
		t.Errorf("limits are %+v, want none", none.Options)
	}
	// Messages of a paused key wait, and do not block other keys.
	received := func() (keys []string) {
		t.Helper()
		var got []wire.Delivery
		s.until("something is handed out", func() bool {
			ask(200, "POST", "/v1/queues/in-order/receive", `{"max":10}`, &got)
			return len(got) > 0
		})
		for _, d := range got {
			keys = append(keys, d.Key)
			ask(200, "POST", "/v1/deliveries/ack", `{"deliveries":[{"id":"`+d.ID.String()+`"}]}`, nil)
		}
		return keys
	}
	ask(200, "POST", "/v1/queues/in-order/keys/pause", `{"key":"/"}`, &queue)
	if !slices.Equal(queue.PausedKeys, []string{"/"}) {
		t.Errorf("paused are %q", queue.PausedKeys)
	}
	ask(201, "POST", "/v1/queues/in-order/messages", `{"payload":1,"key":"/"}`, nil)
	ask(201, "POST", "/v1/queues/in-order/messages", `{"payload":2,"key":"c"}`, nil)
	if keys := received(); !slices.Equal(keys, []string{"c"}) {
		t.Errorf("handed out were the keys %q while one was paused", keys)
	}
	var resumed wire.Queue
	if ask(200, "POST", "/v1/queues/in-order/keys/resume", `{"key":"/"}`, &resumed); len(resumed.PausedKeys) > 0 {
		t.Errorf("paused are %q after resuming", resumed.PausedKeys)
	}
	if keys := received(); !slices.Equal(keys, []string{"/"}) {
		t.Errorf("handed out were the keys %q after resuming", keys)
	}
	// A paused queue hands out nothing.
	ask(200, "POST", "/v1/queues/orders/pause", "", nil)
	ask(201, "POST", "/v1/queues/orders/messages", `{"payload":1,"kind":"paid"}`, nil)
	ask(201, "POST", "/v1/queues/orders/messages", `{"payload":2,"kind":"sent"}`, nil)
	var got []wire.Delivery
	if ask(200, "POST", "/v1/queues/orders/receive", `{"max":10}`, &got); len(got) > 0 {
		t.Errorf("a paused queue handed out %+v", got)
	}
	ask(200, "POST", "/v1/queues/orders/resume", "", nil)
	// A subscription from the oldest message gets the kept messages that pass its filter.
	ask(201, "PUT", "/v1/queues/orders/subscriptions/audit", `{"from":"oldest","filter":{"kind":["paid"]}}`, nil)
	s.until("the subscription has it", func() bool {
		ask(200, "POST", "/v1/queues/orders/receive", `{"max":10,"subscription":"audit"}`, &got)
		return len(got) > 0
	})
	if len(got) != 1 || got[0].Kind != "paid" || got[0].Subscription != "audit" {
		t.Errorf("the subscription got %+v", got)
	}
	ask(204, "DELETE", "/v1/queues/orders/subscriptions/audit", "", nil)
	s.until("it has ended", func() bool {
		var left wire.Queue
		_, err := s.engine.Maintain(s.ctx, posthaste.UpkeepSpace)
		s.must(err)
		ask(200, "GET", "/v1/queues/orders", "", &left)
		return len(left.Subscriptions) == 1
	})
	var purged []wire.Purged
	if ask(200, "POST", "/v1/queues/orders/purge", "", &purged); len(purged) != 1 || purged[0].Messages != 2 {
		t.Errorf("purged: %+v", purged)
	}
	// Newest first.
	for name, want := range map[string][]string{
		"orders":   {"purge", "unsubscribe", "subscribe", "resume", "pause", "limit", "limit", "create"},
		"in-order": {"resume_key", "pause_key", "create"},
	} {
		var actions []wire.Action
		ask(200, "GET", "/v1/actions?queue="+name, "", &actions)
		var did []string
		for _, each := range actions {
			did = append(did, each.Action)
			if each.By != "http:ops" || each.At.IsZero() {
				t.Errorf("%s of %s was by %q at %s", each.Action, name, each.By, each.At)
			}
		}
		if !slices.Equal(did, want) {
			t.Errorf("on record of %s are %q, want %q", name, did, want)
		}
	}
	ask(204, "DELETE", "/v1/queues/orders", "", nil)
	ask(404, "GET", "/v1/queues/orders", "", nil)
}
