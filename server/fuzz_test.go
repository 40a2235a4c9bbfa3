package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
	"github.com/posthaste-mq/posthaste/internal/memory"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// Whatever is accepted names each delivery once and says all that its action needs.
func FuzzParseDeliveries(f *testing.F) {
	for _, seed := range []string{
		`{"deliveries":[{"id":"1","receipt":{"a":1}},{"id":"2"}]}`, `{"deliveries":[{"id":"1","error":"x","permanent":true}]}`,
		`{"deliveries":[{"id":"1","error":"x","retry_after":"5 minutes"}]}`, `{"deliveries":[{"id":1}]}`, `{"deliveries":[{"id":"1"},{"id":"1"}]}`,
		`{"deliveries":{}}`, `{}`, `[]`, `{"deliveries":[null]}`, `{"deliveries":[{"id":"9223372036854775808"}]}`, `{"deliveries":[{"id":"-1"}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, fields := range []struct {
			failing     bool
			settlements []posthaste.Settlement
			err         error
		}{both(data, false), both(data, true)} {
			if fields.err != nil {
				var e *posthaste.Error
				if !errors.As(fields.err, &e) || e.Code != posthaste.CodeInvalid || e.Message == "" {
					t.Fatalf("not clear: %#v", fields.err)
				}
				continue
			}
			seen := map[posthaste.DeliveryID]bool{}
			for _, s := range fields.settlements {
				if s.Delivery <= 0 || seen[s.Delivery] || (s.Error != "") != fields.failing || s.RetryAfter < 0 {
					t.Fatalf("%+v", s)
				}
				seen[s.Delivery] = true
			}
			if len(seen) == 0 {
				t.Fatal("none, or both")
			}
		}
	})
}

func both(data []byte, failing bool) (result struct {
	failing     bool
	settlements []posthaste.Settlement
	err         error
}) {
	result.failing = failing
	take := ackFields
	if failing {
		take = failFields
	}
	result.settlements, result.err = parseSettlements(data, take)
	return result
}

// Of the body that says which dead letters are meant.
func FuzzParseIDs(f *testing.F) {
	for _, seed := range []string{`{"ids":["1","2","1"]}`, `{"ids":[]}`, `{"ids":[1]}`, `{"ids":"1"}`, `{}`, `{"ids":["x"]}`, `{"filter":{"queue":"q","died_from":"2030-01-31T12:00:00Z"},"limit":7,"cursor":"ZGVhZC1sZXR0ZXJzOjk"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		filter, err := parseChosen(data)
		if err != nil {
			if posthaste.CodeOf(err) != posthaste.CodeInvalid {
				t.Fatalf("not clear: %#v", err)
			}
			return
		}
		if err := filter.CheckChoice(); err != nil {
			t.Fatalf("%+v: %v", filter, err)
		}
		for _, id := range filter.IDs {
			if id <= 0 {
				t.Fatal(id)
			}
		}
		if filter.Limit < 0 || filter.Limit > maxListed || filter.Before < 0 {
			t.Fatalf("%+v", filter)
		}
	})
}

// Of the query that says which dead letters are to be listed.
func FuzzParseDeadQuery(f *testing.F) {
	for _, seed := range []string{``, `id=1&id=2`, `id=x`, `queue=q&subscription=s&kind=k&key=a%20b&reference=r&term=t&error=no+way`, `died_from=2030-01-31T12:00:00Z&died_before=2030-02-01T00:00:00%2B01:00`,
		`limit=1000&before=9`, `limit=0`, `limit=1e3`, `before=-1`, `queue=a&queue=b`, `died_from=yesterday`, `color=red`, `queue=%ff`, `key=%00`, `%`, `a;b`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		filter, err := parseDeadQuery(&http.Request{URL: &url.URL{RawQuery: query}})
		if err != nil {
			var e *posthaste.Error
			if !errors.As(err, &e) || e.Code != posthaste.CodeInvalid || e.Message == "" {
				t.Fatalf("not clear: %#v", err)
			}
			return
		}
		if filter.Limit < 1 || filter.Limit > maxListed || filter.Before < 0 {
			t.Fatalf("%+v", filter)
		}
		for _, id := range filter.IDs {
			if id <= 0 {
				t.Fatal(id)
			}
		}
		for _, text := range []string{filter.Queue, filter.Subscription, filter.Kind, filter.Key, filter.Reference, filter.Term, filter.Error} {
			if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
				t.Fatalf("%q is no text that can be stored", text)
			}
		}
	})
}

// Queries of receive and of the listings: a rejected query names the parameter at fault and
// does not reach the store. An accepted one reaches it as requested, within its bounds.
func FuzzQueries(f *testing.F) {
	for which, seeds := range [][]string{
		{``, `max=10&lease=30s&wait=0s`, `subscription=audit&max=1000&lease=12h`, `max=0`, `max=1e3`, `max=1001`, `lease=0s`, `lease=-1s`, `lease=13h`, `lease=soon`, `lease=5+minutes`, `wait=6m`, `max=1&max=2`, `color=red`, `=1`, `subscription=%ff`, `%`, `a;b`},
		{``, `queue=q&reference=r&key=a%20b&term=t&state=done&limit=1000&before=9`, `state=gone`, `limit=0`, `limit=%00`, `before=-1`, `before=9223372036854775808`, `queue=a&queue=b`, `key=%00`, `%C3%28=1`},
		{``, `reference=r&recipient=Ada%40Example.com&status=sent&limit=7&before=9`, `status=scheduled`, `status=done`, `recipient=%00`, `recipient=%22a+b%22%40example.com`, `id=1`},
	} {
		for _, seed := range seeds {
			f.Add(uint8(which), seed)
		}
	}
	var listed []posthaste.MessageFilter
	var received []posthaste.ReceiveRequest
	server, err := New(Config{LookInterval: time.Hour, Engine: &hooked{
		Store: memory.Open(),
		list: func(_ context.Context, filter posthaste.MessageFilter) (page posthaste.Page[posthaste.MessageInfo], err error) {
			listed = append(listed, filter)
			return page, nil
		},
		receive: func(_ context.Context, r posthaste.ReceiveRequest) (posthaste.ReceiveReply, error) {
			received = append(received, r)
			return posthaste.ReceiveReply{Deliveries: []posthaste.RawDelivery{{ID: 4096, MessageID: 1, Attempt: 1, Payload: []byte(`1`)}}}, nil
		},
	}})
	if err != nil {
		f.Fatal(err)
	}
	known := [][]string{{"subscription", "max", "lease", "wait"}, {"queue", "reference", "key", "term", "state", "limit", "before"}, {"reference", "recipient", "status", "limit", "before"}}
	f.Fuzz(func(t *testing.T, which uint8, query string) {
		which %= 3
		listed, received = nil, nil
		r := httptest.NewRequest([]string{"POST", "GET", "GET"}[which], []string{"/v1/queues/orders/receive", "/v1/messages", "/v1/emails"}[which], nil)
		r.Host, r.URL.RawQuery = "localhost", query
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		values, unreadable := url.ParseQuery(query)
		switch w.Code {
		case http.StatusBadRequest:
			var p wire.Problem
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Code != posthaste.CodeInvalid || p.Detail == "" || p.Field == "" && unreadable == nil && !values.Has("") {
				t.Fatalf("not clear: %s", w.Body)
			}
			named := p.Field == ""
			for name := range values {
				named = named || string([]rune(name)) == p.Field // as JSON has it
			}
			if !named || len(listed)+len(received) > 0 {
				t.Fatalf("%q is at fault; asked were %+v, %+v", p.Field, listed, received)
			}
			return
		case http.StatusOK:
		default:
			t.Fatalf("%d: %s", w.Code, w.Body)
		}
		for name, all := range values {
			if !slices.Contains(known[which], name) || len(all) > 1 || !utf8.ValidString(all[0]) || strings.ContainsRune(all[0], 0) {
				t.Fatalf("%s=%q is taken", name, all)
			}
		}
		for _, r := range received {
			if r.Queue != "orders" || r.Subscription != cmp.Or(values.Get("subscription"), posthaste.DefaultSubscription) || r.Max < 1 || r.Max > maxClaim || r.Lease <= 0 || r.Lease > maxLease {
				t.Fatalf("asked is %+v", r)
			}
		}
		for _, filter := range listed {
			if filter.Reference != values.Get("reference") || filter.Limit < 1 || filter.Limit > maxListed || filter.Before < 0 || filter.State != "" && !slices.Contains(posthaste.States(), filter.State) {
				t.Fatalf("asked is %+v", filter)
			}
			if which == 1 && (filter.Queue != values.Get("queue") || filter.Key != values.Get("key") || filter.Term != values.Get("term") || string(filter.State) != values.Get("state")) {
				t.Fatalf("asked is %+v", filter)
			}
			if which == 2 && (filter.Queue != "emails" || (filter.Term == "") != (strings.TrimSpace(values.Get("recipient")) == "") || string(email.StatusOf(filter.State)) != values.Get("status")) {
				t.Fatalf("asked is %+v", filter)
			}
		}
		if len(listed)+len(received) == 0 {
			t.Fatal("the store was not asked")
		}
	})
}
