package server

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/posthaste-mq/posthaste"
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
				if !errors.As(fields.err, &e) || e.Code != posthaste.Invalid || e.Message == "" {
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
	for _, seed := range []string{`{"ids":["1","2","1"]}`, `{"ids":[]}`, `{"ids":[1]}`, `{"ids":"1"}`, `{}`, `{"ids":["x"]}`, `{"filter":{"queue":"q","died_from":"2030-01-31T12:00:00Z"},"limit":7,"before":"9"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		ids, filter, err := parseChosen(data)
		if err != nil {
			if posthaste.CodeOf(err) != posthaste.Invalid {
				t.Fatalf("not clear: %#v", err)
			}
			return
		}
		if (len(ids) == 0) == (filter == nil) {
			t.Fatal("none, or both")
		}
		for _, id := range ids {
			if id <= 0 {
				t.Fatal(id)
			}
		}
		if filter != nil && (filter.Limit < 0 || filter.Limit > maxListed || filter.Before < 0 || len(filter.IDs) > 0) {
			t.Fatalf("%+v", filter)
		}
	})
}

// Of the query that says which dead letters are to be listed.
func FuzzParseDeadQuery(f *testing.F) {
	for _, seed := range []string{``, `id=1&id=2`, `id=x`, `queue=q&subscription=s&kind=k&key=a%20b&reference=r&term=t&error=no+way`, `died_from=2030-01-31T12:00:00Z&died_before=2030-02-01T00:00:00%2B01:00`,
		`limit=1000&before=9`, `limit=0`, `limit=1e3`, `before=-1`, `queue=a&queue=b`, `died_from=yesterday`, `colour=red`, `queue=%ff`, `key=%00`, `%`, `a;b`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		filter, err := parseDeadQuery(&http.Request{URL: &url.URL{RawQuery: query}})
		if err != nil {
			var e *posthaste.Error
			if !errors.As(err, &e) || e.Code != posthaste.Invalid || e.Message == "" {
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
