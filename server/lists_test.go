package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// listCase is a list with some entries, and a way to add one to it.
type listCase struct {
	path string
	add  func(t *testing.T, a *api, n int)
}

var listCases = []listCase{
	{"/v1/queues", func(t *testing.T, a *api, n int) { a.queue(nthName("more", n)) }},
	{"/v1/messages", sendOne},
	{"/v1/messages?state=ready,scheduled", sendOne},
	{"/v1/messages?kind=k", sendOne},
	{"/v1/queues/orders/messages", sendOne},
	{"/v1/dead-letters", func(t *testing.T, a *api, _ int) { a.die("deadly") }},
	{"/v1/schedules", func(t *testing.T, a *api, n int) {
		a.call("PUT", "/v1/schedules/"+nthName("beat", n), `{"queue":"orders","spec":"every 1 hour"}`).want(t, 201)
	}},
	{"/v1/emails", func(t *testing.T, a *api, _ int) { a.call("POST", "/v1/emails", someEmail).want(t, 201) }},
	{"/v1/actions", func(t *testing.T, a *api, n int) { a.queue(nthName("acted", n)) }},
	{"/v1/pauses", pauseOne},
	{"/v1/queues/orders/pauses", pauseOne},
	{"/v1/workers", func(t *testing.T, a *api, n int) {
		if _, err := a.engine.Register(t.Context(), posthaste.WorkerInfo{Name: nthName("w", n), Lease: time.Minute, Version: "v"}); err != nil {
			t.Fatal(err)
		}
	}},
	{"/v1/tokens", func(t *testing.T, a *api, n int) {
		a.makeToken(posthaste.Token{Name: nthName("t", n), Scopes: []Scope{ScopeRead}})
	}},
	{"/v1/doctor", func(_ *testing.T, a *api, n int) {
		a.findings = append(a.findings, posthaste.Finding{Check: nthName("check", n), Fault: n%2 == 0, Message: "m"})
	}},
	{"/v1/queues/orders/subscriptions", func(_ *testing.T, a *api, n int) {
		a.subscriptions = append(a.subscriptions, posthaste.SubscriptionInfo{Name: nthName("s", n)})
	}},
}

func sendOne(t *testing.T, a *api, _ int) {
	a.call("POST", "/v1/queues/orders/messages", `{"payload":1,"kind":"k"}`).want(t, 201)
}

// nthName makes names that do not come in the order in which they are made.
func nthName(prefix string, n int) string { return fmt.Sprintf("%s-%d-%d", prefix, n*7%10, n) }

// TestJB7_ListsArePagedAndStable reads each list page by page while entries are added. No page is
// larger than its limit, the entries that were there at the beginning appear exactly once and in
// the order of the whole list, and the last page says that it is the last.
func TestJB7_ListsArePagedAndStable(t *testing.T) {
	t.Parallel()
	for _, c := range listCases {
		t.Run(c.path, func(t *testing.T) {
			t.Parallel()
			a := newListedAPI(t)
			for n := range 6 {
				c.add(t, a, n)
			}
			whole := a.entries(c.path, 1000, nil)
			if len(whole) < 6 {
				t.Fatalf("%d entries, want at least 6: %v", len(whole), whole)
			}
			added := 10
			for limit := 1; limit <= 4; limit++ {
				most := added + 5 // a list that grows with each page does not end
				paged := a.entries(c.path, limit, func() {
					if added < most {
						c.add(t, a, added)
						added++
					}
				})
				// Those that were added meanwhile may appear where they belong.
				slices.Sort(whole)
				kept := slices.DeleteFunc(slices.Clone(paged), func(entry string) bool { _, was := slices.BinarySearch(whole, entry); return !was })
				if slices.Sort(kept); !slices.Equal(kept, whole) {
					t.Errorf("in pages of %d: %v, want %v", limit, paged, whole)
				}
				whole = a.entries(c.path, 1000, nil)
			}
			for _, bad := range []string{"0", "1001", "x"} {
				a.call("GET", withQuery(c.path, "limit="+bad), "").wantProblem(t, 400, posthaste.CodeInvalid, "limit")
			}
			for _, bad := range []string{"x", "4711", wire.NewCursor("another", "4711"), wire.NewCursor("queues", ""), "MQ=="} {
				a.call("GET", withQuery(c.path, "cursor="+bad), "").wantProblem(t, 400, posthaste.CodeInvalid, "cursor")
			}
			a.call("GET", withQuery(c.path, "before=1"), "").wantProblem(t, 400, posthaste.CodeInvalid, "before")
		})
	}
}

// TestJB7_EveryListIsTried compares the cases of the test before with openapi.yaml.
func TestJB7_EveryListIsTried(t *testing.T) {
	t.Parallel()
	doc, err := spec()
	if err != nil {
		t.Fatal(err)
	}
	for path, item := range doc.Paths.Map() {
		if item.Get == nil || item.Get.Responses.Value("200") == nil {
			continue
		}
		media := item.Get.Responses.Value("200").Value.Content["application/json"]
		if media == nil || media.Schema.Value.Properties["has_more"] == nil {
			if media != nil && media.Schema.Value.Type.Is("array") {
				t.Errorf("%s answers with an array", path)
			}
			continue
		}
		if !slices.ContainsFunc(listCases, func(c listCase) bool {
			base, _, _ := strings.Cut(c.path, "?")
			return strings.ReplaceAll(path, "{queue}", "orders") == base
		}) {
			t.Errorf("%s is a list, and no case of listCases", path)
		}
		for _, name := range []string{"limit", "cursor"} {
			if item.Get.Parameters.GetByInAndName("query", name) == nil {
				t.Errorf("%s has no parameter %s", path, name)
			}
		}
	}
}

func newListedAPI(t *testing.T) *api {
	var a *api
	a = newAPI(t, func(_ *Config, h *hooked) {
		h.doctor = func(context.Context) ([]posthaste.Finding, error) { return slices.Clone(a.findings), nil }
		h.queues = func(ctx context.Context, names ...string) ([]posthaste.QueueInfo, error) {
			all, err := h.Store.Queues(ctx, names...)
			for i := range all {
				if all[i].Name == "orders" {
					all[i].Subscriptions = append(all[i].Subscriptions, a.subscriptions...)
				}
			}
			return all, err
		}
	})
	for _, name := range []string{"orders", "deadly", "emails"} {
		a.queue(name)
	}
	a.token = a.makeToken(posthaste.Token{Name: "reader", Scopes: []Scope{ScopeAdmin}})
	return a
}

func withQuery(path, query string) string {
	if strings.Contains(path, "?") {
		return path + "&" + query
	}
	return path + "?" + query
}

// entries reads a list page by page, and calls between after each page but the last.
func (a *api) entries(path string, limit int, between func()) (all []string) {
	a.t.Helper()
	at := withQuery(path, fmt.Sprint("limit=", limit))
	for range 200 {
		answer := a.call("GET", at, "").want(a.t, 200)
		var page []map[string]json.RawMessage
		answer.items(a.t, &page)
		if len(page) > limit {
			a.t.Fatalf("%s has %d entries", at, len(page))
		}
		for _, entry := range page {
			all = append(all, cmp.Or(string(entry["id"]), string(entry["name"]), string(entry["check"])))
		}
		next := answer.next(a.t)
		if next == "" {
			return all
		}
		if between != nil {
			between()
		}
		at = withQuery(path, fmt.Sprint("limit=", limit, "&cursor=", next))
	}
	a.t.Fatalf("%s does not end", path)
	return nil
}

func pauseOne(t *testing.T, a *api, n int) {
	a.call("POST", "/v1/queues/orders/kinds/pause", `{"kind":"`+nthName("k", n)+`","reason":"r","for":"1h"}`).want(t, 200)
}
