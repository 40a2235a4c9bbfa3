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

// operator uses the HTTP API with a token of scope admin.
type operator struct {
	*stage
	http *api
}

// ask makes a request and decodes its answer, unless into is nil.
func (o *operator) ask(status int, method, path, body string, into any) {
	o.Helper()
	got := o.http.want(status, method, path, body, "Authorization", "Bearer a-secret-of-some-length-0123456789")
	if into != nil {
		if reflect.TypeOf(into).Elem().Kind() == reflect.Slice {
			got.body = got.entries(o.T)
		}
		o.must(json.Unmarshal(got.body, into))
	}
}

// createsQueues checks that each option is as requested, and that repeating the request changes
// nothing.
func (o *operator) createsQueues() {
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
		o.must(json.Unmarshal([]byte(options), &asked))
		o.ask(201, "PUT", "/v1/queues/"+name, options, &made)
		o.ask(200, "PUT", "/v1/queues/"+name, options, &again)
		for option, want := range asked {
			want, _ := json.Marshal(want)
			is, _ := json.Marshal(made.Options[option])
			still, _ := json.Marshal(again.Options[option])
			if string(is) != string(want) || string(still) != string(want) {
				o.Errorf("%s: %s is %s, and %s when asked again; want %s", name, option, is, still, want)
			}
		}
	}
}

// changesLimits checks that options that are named change, and that null removes them.
func (o *operator) changesLimits() {
	var queue wire.Queue
	o.ask(200, "PATCH", "/v1/queues/orders", `{"concurrency":null,"rate_limit":{"limit":1000,"per":"1s","burst":70}}`, &queue)
	rate, _ := json.Marshal(queue.Options["rate_limit"])
	if queue.Options["concurrency"] != nil || string(rate) != `{"burst":70,"limit":1000,"per":"1s"}` {
		o.Errorf("limits are %+v", queue.Options)
	}
	var none wire.Queue
	if o.ask(200, "PATCH", "/v1/queues/orders", `{"rate_limit":null}`, &none); none.Options["rate_limit"] != nil {
		o.Errorf("limits are %+v, want none", none.Options)
	}
}

// received receives messages, acknowledges them and returns their keys.
func (o *operator) received() (keys []string) {
	o.Helper()
	var got []wire.Delivery
	o.until("something is handed out", func() bool {
		o.ask(200, "POST", "/v1/queues/in-order/receive", `{"max":10}`, &got)
		return len(got) > 0
	})
	for _, d := range got {
		keys = append(keys, d.Key)
		o.ask(200, "POST", "/v1/deliveries/ack", `{"deliveries":[{"id":"`+d.ID.String()+`"}]}`, nil)
	}
	return keys
}

// pausesKey checks that messages of a paused key wait, and do not block other keys.
func (o *operator) pausesKey() {
	var queue wire.Queue
	o.ask(200, "POST", "/v1/queues/in-order/keys/pause", `{"key":"/"}`, &queue)
	if !slices.Equal(queue.PausedKeys, []string{"/"}) {
		o.Errorf("paused are %q", queue.PausedKeys)
	}
	o.ask(201, "POST", "/v1/queues/in-order/messages", `{"payload":1,"key":"/"}`, nil)
	o.ask(201, "POST", "/v1/queues/in-order/messages", `{"payload":2,"key":"c"}`, nil)
	if keys := o.received(); !slices.Equal(keys, []string{"c"}) {
		o.Errorf("handed out were the keys %q while one was paused", keys)
	}
	var resumed wire.Queue
	if o.ask(200, "POST", "/v1/queues/in-order/keys/resume", `{"key":"/"}`, &resumed); len(resumed.PausedKeys) > 0 {
		o.Errorf("paused are %q after resuming", resumed.PausedKeys)
	}
	if keys := o.received(); !slices.Equal(keys, []string{"/"}) {
		o.Errorf("handed out were the keys %q after resuming", keys)
	}
}

// pausesQueue checks that a paused queue hands out nothing.
func (o *operator) pausesQueue() {
	o.ask(200, "POST", "/v1/queues/orders/pause", "", nil)
	o.ask(201, "POST", "/v1/queues/orders/messages", `{"payload":1,"kind":"paid"}`, nil)
	o.ask(201, "POST", "/v1/queues/orders/messages", `{"payload":2,"kind":"sent"}`, nil)
	var got []wire.Delivery
	if o.ask(200, "POST", "/v1/queues/orders/receive", `{"max":10}`, &got); len(got) > 0 {
		o.Errorf("a paused queue handed out %+v", got)
	}
	o.ask(200, "POST", "/v1/queues/orders/resume", "", nil)
}

// subscribes checks that a subscription from the oldest message gets the kept messages that pass
// its filter.
func (o *operator) subscribes() {
	var got []wire.Delivery
	o.ask(201, "PUT", "/v1/queues/orders/subscriptions/audit", `{"from":"oldest","filter":{"kind":["paid"]}}`, nil)
	o.until("the subscription has it", func() bool {
		o.ask(200, "POST", "/v1/queues/orders/receive", `{"max":10,"subscription":"audit"}`, &got)
		return len(got) > 0
	})
	if len(got) != 1 || got[0].Kind != "paid" || got[0].Subscription != "audit" {
		o.Errorf("the subscription got %+v", got)
	}
	o.ask(204, "DELETE", "/v1/queues/orders/subscriptions/audit", "", nil)
	o.until("it has ended", func() bool {
		var left wire.Queue
		_, err := o.engine.Maintain(o.ctx, posthaste.UpkeepSpace)
		o.must(err)
		o.ask(200, "GET", "/v1/queues/orders", "", &left)
		return len(left.Subscriptions) == 1
	})
	var purged []wire.Purged
	if o.ask(200, "POST", "/v1/queues/orders/purge", "", &purged); len(purged) != 1 || purged[0].Messages != 2 {
		o.Errorf("purged: %+v", purged)
	}
}

// isOnRecord checks the recorded actions, newest first.
func (o *operator) isOnRecord() {
	for name, want := range map[string][]string{
		"orders":   {"purge", "unsubscribe", "subscribe", "resume", "pause", "update", "update", "create"},
		"in-order": {"resume_key", "pause_key", "create"},
	} {
		var actions []wire.Action
		o.ask(200, "GET", "/v1/actions?queue="+name, "", &actions)
		var did []string
		for _, each := range actions {
			did = append(did, each.Action)
			if each.By != "http:ops" || each.At.IsZero() {
				o.Errorf("%s of %s was by %q at %s", each.Action, name, each.By, each.At)
			}
		}
		if !slices.Equal(did, want) {
			o.Errorf("on record of %s are %q, want %q", name, did, want)
		}
	}
}

// Operators' actions on queues over HTTP take effect, are visible, and are recorded with the
// name of the token.
func TestOperatorsOverHTTP(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	token, err := server.NewToken("ops", "a-secret-of-some-length-0123456789", server.ScopeAdmin)
	s.must(err)
	o := &operator{stage: s, http: s.serve(s.engine, func(c *server.Config) { c.Tokens = []posthaste.Token{token} })}
	o.createsQueues()
	o.changesLimits()
	o.pausesKey()
	o.pausesQueue()
	o.subscribes()
	o.isOnRecord()
	o.ask(204, "DELETE", "/v1/queues/orders", "", nil)
	o.ask(404, "GET", "/v1/queues/orders", "", nil)
}
