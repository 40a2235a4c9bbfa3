package dashboard_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/dashboard"
)

const evil = `"><script>alert(1)</script><img src=x onerror=alert(2)>'` + "`" + `{{.}}javascript:alert(3)`

// evilStore says evil things in every field.
type evilStore struct{ *stocked }

func (s *evilStore) evilMessage(m posthaste.MessageInfo) posthaste.MessageInfo {
	m.Kind, m.Key, m.Reference, m.Terms, m.ContentType = evil, evil, evil, []string{evil}, evil
	m.Headers, m.Payload = map[string]string{evil: evil}, []byte(`{"`+strings.ReplaceAll(evil, `"`, `\"`)+`": "</pre>`+strings.ReplaceAll(evil, `"`, `\"`)+`"}`)
	text, _ := json.Marshal("</pre>" + evil)
	attempt := posthaste.Attempt{Attempt: 1, Outcome: posthaste.OutcomeRetried, Worker: evil, Error: "</pre>" + evil, Receipt: text, Checkpoint: text, Progress: 0.5, ProgressText: evil, Log: "</pre>" + evil}
	m.Subscriptions = []posthaste.MessageState{{Subscription: evil, State: posthaste.StateRetrying, Attempts: []posthaste.Attempt{attempt}}, {Subscription: "other", State: posthaste.State(evil)}}
	if m.ID == s.ready { // it can be edited
		m.Subscriptions = []posthaste.MessageState{{Subscription: evil, State: posthaste.StateScheduled}}
	}
	return m
}

func (s *evilStore) Message(ctx context.Context, id posthaste.MessageID) (posthaste.MessageInfo, error) {
	m, err := s.stocked.Message(ctx, id)
	return s.evilMessage(m), err
}

func (s *evilStore) Messages(ctx context.Context, f posthaste.MessageFilter) (posthaste.Page[posthaste.MessageInfo], error) {
	all, err := s.stocked.Messages(ctx, posthaste.MessageFilter{})
	for i := range all.Items {
		all.Items[i] = s.evilMessage(all.Items[i])
	}
	return all, err
}

func (s *evilStore) DeadLetters(ctx context.Context, _ posthaste.DeadLetterFilter) (posthaste.Page[posthaste.DeadLetter], error) {
	all, err := s.stocked.DeadLetters(ctx, posthaste.DeadLetterFilter{})
	for i := range all.Items {
		d := &all.Items[i]
		d.Kind, d.Key, d.Reference, d.Error, d.Subscription = evil, evil, evil, evil, evil
	}
	return all, err
}

func (s *evilStore) Queues(ctx context.Context, names ...string) ([]posthaste.QueueInfo, error) {
	all, err := s.stocked.Queues(ctx, names...)
	for i := range all {
		all[i].PausedKeys, all[i].PausedKinds, all[i].Options.Owner = []string{evil}, []string{evil}, evil
		sub := &all[i].Subscriptions[0]
		sub.Name, sub.Filter = evil, posthaste.Filter{Kinds: []string{evil}, Headers: map[string][]string{evil: {evil}}}
		sub.SetAside = []posthaste.SetAside{{Kind: evil, Waiting: 1}}
		sub.Dead = 1
	}
	return all, err
}

func (s *evilStore) Doctor(context.Context) ([]posthaste.Finding, error) {
	return []posthaste.Finding{{Check: evil, Fault: true, Message: evil, Hint: evil, Queue: "orders", Subscription: evil}}, nil
}

func (s *evilStore) Workers(context.Context) ([]posthaste.WorkerStatus, error) {
	return []posthaste.WorkerStatus{{ID: 1, Name: evil, Version: evil, StartedAt: time.Now(), State: posthaste.WorkerState{
		Concurrency: 1, Loads: []posthaste.WorkerLoad{{Queue: evil, Subscription: evil, Claimed: 1}},
		Running: []posthaste.RunningMessage{{Message: 1, Queue: evil, Subscription: evil, Kind: evil}}},
		Sinks: []posthaste.WorkerSink{{Queue: "orders", Subscription: evil, Destination: evil}, {Queue: evil, Destination: evil}}}}, nil
}

func (s *evilStore) Failures(context.Context, posthaste.FailureQuery) ([]posthaste.Failure, error) {
	return []posthaste.Failure{{Queue: "orders", Subscription: evil, Kind: evil, Version: evil, ErrorCount: posthaste.ErrorCount{Fingerprint: evil, Error: "</pre>" + evil, Message: 1, Count: 1}}}, nil
}

func (s *evilStore) HandlerStats(context.Context, posthaste.StatsQuery) ([]posthaste.HandlerStats, error) {
	stats := posthaste.HandlerStats{At: time.Now(), Queue: "orders", Kind: evil, Version: evil, Worker: evil, Done: 1}
	stats.Run.Add(time.Second)
	return []posthaste.HandlerStats{stats, {At: stats.At, Version: "2", Failed: 1}}, nil
}

func (s *evilStore) Samples(context.Context, posthaste.SampleQuery) ([]posthaste.Sample, error) {
	return []posthaste.Sample{{At: time.Now().Add(-10 * time.Minute), Queue: "orders", Subscription: evil, Sent: 60, Depth: math.MaxInt64}}, nil
}

func (s *evilStore) Actions(context.Context, posthaste.ActionFilter) ([]posthaste.Action, error) {
	text, _ := json.Marshal(map[string]string{evil: evil})
	return []posthaste.Action{{ID: 1, By: evil, Action: evil, Queue: evil, MessageID: 1, Details: text}}, nil
}

func (s *evilStore) Tokens(context.Context) ([]posthaste.Token, error) {
	return []posthaste.Token{{Name: "x", Scopes: []posthaste.Scope{posthaste.Scope(evil)}, Queues: []string{evil}, CreatedBy: evil}}, nil
}

func (s *evilStore) Schedules(context.Context, ...string) ([]posthaste.ScheduleInfo, error) {
	return []posthaste.ScheduleInfo{{Schedule: posthaste.Schedule{Name: "nightly", Spec: evil, TimeZone: evil, CatchUp: evil, Message: posthaste.Message{Queue: "orders", Kind: evil}}, Error: evil}}, nil
}

// Text of senders, handlers and the address stays text: a parser of HTML finds no element and no
// attribute that the pages do not have by themselves.
func TestDB5TextStaysText(t *testing.T) {
	t.Parallel()
	s := newSite(t, &evilStore{newStock(t)}, func(c *dashboard.Config) { c.Environment = evil })
	v := s.viewer(posthaste.ScopeAdmin)
	q := url.QueryEscape(evil)
	pages := []string{"/", "/queues?sort=" + q, "/queues/orders", "/queues/orders/send", "/queues/orders/keys/pause?key=" + q, "/messages/1", "/messages/1/cancel", "/messages/3/edit", "/messages/3/reschedule?at=" + q, "/messages/3/reschedule?at=1h", "/queues/emails", "/queues/emails/kinds/pause?kind=" + q, "/queues/orders/options", "/queues/orders/update?timeout=" + q,
		"/messages/cancel?kind=" + q + "&key=" + q + "&reference=" + q + "&term=" + q, "/messages/run?id=" + q, "/bulk", "/bulk/" + url.PathEscape(evil), "/messages?kind=" + q + "&key=" + q + "&reference=" + q + "&term=" + q,
		"/search?q=" + q, "/dead-letters?kind=" + q + "&error=" + q + "&term=" + q, "/dead-letters/replay?error=" + q, "/failing?kind=" + q + "&range=" + q, "/schedules", "/schedules/nightly/run", "/workers", "/relays", "/audit?queue=" + q, "/tokens", "/tokens/x/revoke",
		"/?done=" + q + "&n=" + q, "/?done=purged&n=" + q, "/messages?state=" + q, "/dead-letters?died_from=" + q, "/queues/" + url.PathEscape(evil), "/messages/" + url.PathEscape(evil), "/sign-in?next=" + q, "/nothing/" + url.PathEscape(evil)}
	bulk := v.send(v.get("/messages/run?kind="+q).want(200).form("/run")).want(200, "<script>alert(1)</script>")
	pages = append(pages, bulk.at.Path)
	for _, path := range pages {
		page := v.get(path)
		if strings.HasPrefix(path, "/messages/1") || path == "/workers" || path == "/relays" || strings.HasPrefix(path, "/failing") || path == "/queues/orders" || path == "/audit?queue="+q {
			page.want(200, "<script>alert(1)</script>") // it is shown, as text
		}
		checkSafe(t, page)
	}
}

// checkSafe parses a page.
func checkSafe(t *testing.T, p *shown) {
	t.Helper()
	doc, err := html.Parse(strings.NewReader(p.body))
	if err != nil {
		t.Fatal(err)
	}
	_, nonce, _ := strings.Cut(p.header.Get("Content-Security-Policy"), "script-src 'nonce-")
	nonce, _, _ = strings.Cut(nonce, "'")
	for node := range doc.Descendants() {
		if node.Type != html.ElementNode {
			continue
		}
		has := map[string]string{}
		for _, a := range node.Attr {
			has[a.Key] = a.Val
			if strings.HasPrefix(a.Key, "on") || a.Key == "style" || strings.ContainsAny(a.Key, "<>\"'`{}()") {
				t.Errorf("%s: attribute %q of %s", p.at, a.Key, node.Data)
			}
			if (a.Key == "href" || a.Key == "src" || a.Key == "action" || a.Key == "formaction") && !strings.HasPrefix(a.Val, "/") && !strings.HasPrefix(a.Val, "#") {
				t.Errorf("%s: %s leads to %q", p.at, a.Key, a.Val)
			}
		}
		switch node.Data {
		case "iframe":
			if allowed, ok := has["sandbox"]; !ok || allowed != "" || !strings.HasSuffix(has["src"], "/preview") {
				t.Errorf("%s: a frame with %v", p.at, node.Attr)
			}
		case "img", "object", "embed", "base", "image", "use", "foreignobject", "animate", "set":
			t.Errorf("%s: element %s", p.at, node.Data)
		case "script", "style", "link":
			if has["nonce"] != nonce || nonce == "" || node.Data == "script" && node.FirstChild != nil {
				t.Errorf("%s: %s with %v", p.at, node.Data, node.Attr)
			}
		}
	}
}

// bigStore has numbers and ids that no float64 can hold.
type bigStore struct{ *stocked }

const bigID = posthaste.MessageID(math.MaxInt64 - 1)

func (s *bigStore) Message(ctx context.Context, id posthaste.MessageID) (posthaste.MessageInfo, error) {
	m, err := s.stocked.Message(ctx, s.done)
	if id != bigID {
		return s.stocked.Message(ctx, id)
	}
	m.ID, m.Payload = bigID, []byte(`{"n":9007199254740993,"x":[123456789012345678901234567890.10,-0,1e400]}`)
	m.Subscriptions[0].Attempts[0].Receipt = json.RawMessage(`{"id":18446744073709551615}`)
	return m, err
}

func (s *bigStore) Queues(ctx context.Context, names ...string) ([]posthaste.QueueInfo, error) {
	all, err := s.stocked.Queues(ctx, names...)
	for i := range all {
		all[i].Subscriptions[0].Sent = math.MaxInt64
	}
	return all, err
}

func TestDB6BigNumbers(t *testing.T) {
	t.Parallel()
	v := newSite(t, &bigStore{newStock(t)}).viewer(posthaste.ScopeAdmin)
	v.get("/messages/"+bigID.String()).want(200, "Message 9223372036854775806", "9007199254740993", "123456789012345678901234567890.10", "-0", "1e400", "18446744073709551615")
	v.get("/search?q="+bigID.String()).want(200, "Message 9223372036854775806")
	v.get("/queues/orders").want(200, "9,223,372,036,854,775,807")
	v.get("/messages/9223372036854775808").want(404)
	if got := v.get("/messages/" + bigID.String() + "/payload"); got.body != `{"n":9007199254740993,"x":[123456789012345678901234567890.10,-0,1e400]}` {
		t.Errorf("the download is %q", got.body)
	}
}

func TestDB6LargePayloads(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	if err := stock.CreateQueue(t.Context(), "large", posthaste.QueueOptions{MaxPayload: posthaste.MaxPayloadBytes}); err != nil {
		t.Fatal(err)
	}
	v := newSite(t, stock).viewer(posthaste.ScopeReadPayload)
	for name, c := range map[string]struct {
		payload []byte
		says    string
	}{
		"JSON":     {[]byte(`{"text":"` + strings.Repeat("ü", 5<<20) + `"}`), "Only the beginning is shown."},
		"a cut":    {[]byte("x" + strings.Repeat("日", 4<<20)), "日日"},
		"nested":   {[]byte(strings.Repeat("[", 900) + strings.Repeat("]", 900)), "[[["},
		"binary":   {bytes.Repeat([]byte{0, 1, 2, 255}, 3<<20), "The payload is not text."},
		"no bytes": {[]byte{}, "no longer stored"},
	} {
		ids, err := posthaste.IDs(stock.Send(t.Context(), posthaste.Message{Queue: "large", Payload: c.payload, ContentType: "text/x"}))
		if err != nil {
			t.Fatal(err)
		}
		page := v.get("/messages/"+ids[0].String()).want(200, c.says)
		if len(page.body) > 2<<20 || strings.Contains(page.body, "\uFFFD") {
			t.Errorf("%s: the page has %d bytes, or half a character", name, len(page.body))
		}
		if len(c.payload) == 0 {
			continue
		}
		got := v.get("/messages/" + ids[0].String() + "/payload").want(200)
		if got.body != string(c.payload) || !strings.HasPrefix(got.header.Get("Content-Disposition"), "attachment") || got.header.Get("Content-Type") != "application/octet-stream" ||
			!strings.HasPrefix(got.header.Get("Content-Security-Policy"), "sandbox") {
			t.Errorf("%s: the download has %d bytes and %v", name, len(got.body), got.header)
		}
	}
}

// Durations that are below zero because of a clock, and words without a place to break, fit.
func TestDB6OddValues(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	key := strings.Repeat("k", 255)
	ids, err := posthaste.IDs(stock.Send(t.Context(), posthaste.Message{Queue: "orders", Key: key, Payload: 1}))
	if err != nil {
		t.Fatal(err)
	}
	v := newSite(t, &oddStore{stock}).viewer(posthaste.ScopeRead)
	v.get("/queues/orders").want(200).lacks("-1 s", " -1 ")
	v.get("/messages/"+ids[0].String()).want(200, key)
}

type oddStore struct{ *stocked }

func (s *oddStore) Queues(ctx context.Context, names ...string) ([]posthaste.QueueInfo, error) {
	all, err := s.stocked.Queues(ctx, names...)
	for i := range all {
		all[i].Subscriptions[0].OldestAge, all[i].Subscriptions[0].SentPerSecond = -time.Second, -1
	}
	return all, err
}

func TestDB4HeadersOfEveryPage(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	stock.spare(t)
	s := newSite(t, stock)
	v := s.viewer(posthaste.ScopeAdmin)
	stock.bulk = s.endedBulk(stock)
	for _, route := range s.routes {
		if route.Method != "GET" || route.Path == "/events" {
			continue
		}
		h := v.get(stock.path(route.Path)).want(200).header
		policy := h.Get("Content-Security-Policy")
		cached := h.Get("Cache-Control") != "no-store"
		if route.Path == "/messages/{id}/preview" {
			continue // TestEmailPreviewIsSandboxed
		}
		if cached != (route.Path == "/assets/{file}") || h.Get("X-Frame-Options") != "DENY" || strings.Contains(policy, "unsafe") || !strings.Contains(policy, "default-src 'none'") || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %v", route.Path, h)
		}
	}
}

// The scripts of others are those that the checksums name, each with its license.
func TestScriptsOfOthers(t *testing.T) {
	t.Parallel()
	sums, err := os.ReadFile("assets/vendor/SHA256SUMS")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	for line := range strings.Lines(string(sums)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		listed[name] = sum
	}
	names, err := filepath.Glob("assets/vendor/*")
	if err != nil || len(names) != len(listed)+1 {
		t.Errorf("%d files, %d checksums, %v", len(names), len(listed), err)
	}
	for name, want := range listed {
		content, err := os.ReadFile("assets/vendor/" + name)
		if sum := sha256.Sum256(content); err != nil || hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s has the checksum %x, want %s (%v)", name, sum, want, err)
		}
		if script, ok := strings.CutSuffix(name, ".min.js"); ok && listed[strings.TrimSuffix(script, "-ext")+".LICENSE"] == "" && listed[script+".LICENSE"] == "" {
			t.Errorf("%s has no license", name)
		}
	}
}
