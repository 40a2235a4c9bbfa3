package dashboard_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/dashboard"
	"github.com/posthaste-mq/posthaste/server"
)

// until loads a page until it has a text.
func (v *viewer) until(path, text string) *shown {
	v.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		page := v.get(path)
		if strings.Contains(textOf(page), text) {
			return page
		}
		if time.Now().After(deadline) {
			v.t.Fatalf("%s: %q does not come:\n%s", path, text, textOf(page))
		}
	}
}

func textOf(p *shown) string { return text(p.body) }

var triedText = regexp.MustCompile(`([0-9,]+) of ([0-9,]+) (?:At most|Replayed|Stopped|So far|Cancelled)`)

// tried returns how many messages a bulk action came to.
func (p *shown) tried() int {
	p.t.Helper()
	found := triedText.FindStringSubmatch(text(p.body))
	if found == nil {
		p.t.Fatalf("%s shows no progress:\n%s", p.at, text(p.body))
	}
	n, _ := strconv.Atoi(strings.ReplaceAll(found[1], ",", ""))
	return n
}

// slow starts a replay of n dead letters at a rate, and returns its page.
func (v *viewer) slow(query string, rate int) *shown {
	v.t.Helper()
	form := v.get("/dead-letters/replay?"+query).want(200, "It runs in this server in the background").form("/replay")
	form.Values.Set("rate", strconv.Itoa(rate))
	return v.send(form).want(200, "running")
}

// A bulk action goes on after its request, at its rate, until it is stopped. The rest can be
// selected again.
func TestDB2StopAndContinue(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	stock.makeDead(t, "emails", "timeout after %d ms", 500)
	s := newSite(t, stock)
	v := s.viewer(posthaste.ScopeOperate)
	page := v.slow("queue=emails", 4).want(200, "Ends in about", "At most 4 messages per second.", "You can close this page.", "Filter: queue = emails", "by http:operateer")
	begun := page.tried()
	for v.get(page.at.Path).tried() == begun {
	} // the request that started it has ended long before
	v.get("/bulk").want(200, "Replay 500 dead letters running")
	reader := s.viewer(posthaste.ScopeRead)
	if got := reader.get(page.at.Path).want(200, "running"); strings.Contains(got.body, "/stop") {
		t.Error("a reader is offered to stop it")
	}
	stopped := v.send(page.form("/stop")).want(200, "Stopped by http:operateer. Replayed ")
	n := stopped.tried()
	if n == 0 || n >= 400 {
		t.Errorf("%d messages at 4 per second", n)
	}
	if left := stock.deadLetters(t, "emails"); left != 500-n {
		t.Errorf("%d dead letters are left after %d", left, n)
	}
	rest := v.follow(stopped, "Replay the rest").want(200, fmt.Sprintf("Exactly %d dead letters will change.", 500-n))
	for _, rate := range []string{"0", "-1", "1e3", "100001", "x"} {
		wrong := rest.form("/replay")
		wrong.Values.Set("rate", rate)
		v.send(wrong).want(400, "Nothing was changed: the rate must be 1 to 100,000 messages per second")
	}
	v.send(rest.form("/replay")).want(200, fmt.Sprintf("Replayed %d messages.", 500-n)).lacks("Replay the rest")
	// The records name who replayed how many with which filter, and those of one action are together.
	audit := v.get("/audit").want(200, fmt.Sprintf(": Replay %d dead letters; queue = emails) replay emails ", 500-n), "http:operateer (bulk action ", " messages, from ")
	if n := strings.Count(text(audit.body), "replay emails"); n > 2 {
		t.Errorf("one page of the audit log has %d rows of a bulk action:\n%s", n, text(audit.body))
	}
}

// A rate holds, and a bulk action without one is not slowed down.
func TestDB2Rate(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	stock.makeDead(t, "emails", "timeout after %d ms", 30)
	v := newSite(t, stock).viewer(posthaste.ScopeOperate)
	begun := time.Now()
	page := v.slow("queue=emails", 20)
	v.until(page.at.Path, "Replayed 30 messages.")
	if took := time.Since(begun); took < time.Second { // the last ten start after 20/20 s
		t.Errorf("30 messages at 20 per second took %s", took)
	}
}

// A process runs few bulk actions at the same time.
func TestDB2FewRunAtATime(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	stock.makeDead(t, "emails", "timeout after %d ms", 200)
	v := newSite(t, stock).viewer(posthaste.ScopeOperate)
	pages := []*shown{v.startsSlow(), v.startsSlow(), v.startsSlow(), v.startsSlow()}
	fifth := v.get("/dead-letters/discard?queue=orders").form("/discard")
	v.send(fifth).want(503, "4 bulk actions of this process already run", "stop one on its page")
	if n := stock.deadLetters(t, "orders"); n != 1 {
		t.Errorf("%d dead letters, want 1", n)
	}
	v.send(pages[2].form("/stop")).want(200, "Stopped by http:operateer.")
	v.send(fifth).want(200, "Discarded 1 message.")
}

// startsSlow starts a replay while others change the number of dead letters.
func (v *viewer) startsSlow() *shown {
	v.t.Helper()
	for {
		form := v.get("/dead-letters/replay?queue=emails").want(200).form("/replay")
		form.Values.Set("rate", "1")
		if page := v.send(form); page.status != 409 {
			return page.want(200, "running")
		}
	}
}

// broken is a store whose replays fail from the second statement on.
type broken struct {
	*stocked
	replays atomic.Int64
	healed  atomic.Bool
}

func (b *broken) Replay(ctx context.Context, f posthaste.DeadLetterFilter) (posthaste.Page[posthaste.MessageID], error) {
	if b.replays.Add(1) > 1 && !b.healed.Load() {
		return posthaste.Page[posthaste.MessageID]{}, errors.New("the connection broke")
	}
	return b.stocked.Replay(ctx, f)
}

// If a part fails, the page tells how many were changed before, and the rest can be done.
func TestDB2PartFails(t *testing.T) {
	t.Parallel()
	b := &broken{stocked: newStock(t)}
	b.makeDead(t, "emails", "timeout after %d ms", 1200)
	v := newSite(t, b).viewer(posthaste.ScopeOperate)
	page := v.send(v.get("/dead-letters/replay?queue=emails").form("/replay")).want(200, "failed", "It ended with an error: the connection broke. Replayed 1,000 messages.", "Left 200")
	b.healed.Store(true)
	v.send(v.follow(page, "Replay the rest").want(200, "Exactly 200 dead letters").form("/replay")).want(200, "Replayed 200 messages.")
}

// stuck is a store whose replays never end by themselves.
type stuck struct{ *stocked }

func (s *stuck) Replay(ctx context.Context, _ posthaste.DeadLetterFilter) (posthaste.Page[posthaste.MessageID], error) {
	<-ctx.Done()
	return posthaste.Page[posthaste.MessageID]{}, ctx.Err()
}

// A step has the time of a page.
func TestDB2StepTakesTooLong(t *testing.T) {
	t.Parallel()
	v := newSite(t, &stuck{newStock(t)}, func(c *dashboard.Config) { c.Timeout = 100 * time.Millisecond }).viewer(posthaste.ScopeOperate)
	v.send(v.get("/dead-letters/replay?queue=orders").form("/replay")) // the request has the same time
	v.until("/bulk", "failed")
	v.until(v.follow(v.get("/bulk"), "Replay 1 dead letter").at.Path, "a step of up to 1,000 dead letters took longer than 100ms. The audit log tells whether it was done.")
}

// Dead letters that others replay or that hold unique keys are counted apart.
func TestDB2GoneAndKept(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	stock.makeDead(t, "emails", "timeout after %d ms", 100)
	v := newSite(t, stock).viewer(posthaste.ScopeOperate)
	page := v.slow("queue=emails", 1)
	found, err := stock.DeadLetters(t.Context(), posthaste.DeadLetterFilter{Queue: "emails", Limit: 1000})
	if err != nil || len(found.Items) < 50 {
		t.Fatal(len(found.Items), err)
	}
	discarded, err := stock.Discard(t.Context(), posthaste.DeadLetterFilter{Queue: "emails", Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	gone := len(discarded.Items)
	v.until(page.at.Path, fmt.Sprintf("%d were gone when it came to them", gone)).want(200, fmt.Sprintf("Replayed %d message", 100-gone), fmt.Sprintf("Gone %d", gone))

	if err := stock.CreateQueue(t.Context(), "welcomes", posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	unique := posthaste.Message{Queue: "welcomes", Payload: 1, Unique: &posthaste.Unique{Key: "ada"}}
	stock.send(t, unique)
	stock.bury(t, "welcomes", "declined %d", 1)
	stock.send(t, unique)
	for _, query := range []string{"queue=welcomes", "id=" + stock.newestDead(t, "welcomes").String()} {
		v.send(v.get("/dead-letters/replay?"+query).want(200, "Exactly 1 dead letter").form("/replay")).want(200, "Replayed 0 messages.", "1 did not change. They stay dead letters, because other messages hold their unique keys.")
	}
}

// When the server stops, its bulk actions stop, and say so.
func TestDB2ServerStops(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	stock.makeDead(t, "emails", "timeout after %d ms", 100)
	api, err := server.NewPages(server.Config{Engine: stock, Mount: map[string]server.Mount{"/": dashboard.Mount(stock, dashboard.Config{})}})
	if err != nil {
		t.Fatal(err)
	}
	listening := httptest.NewServer(api)
	t.Cleanup(listening.Close)
	v := (&site{t: t, engine: stock, url: listening.URL}).viewer("")
	page := v.slow("queue=emails", 1)
	api.Close()
	v.until(page.at.Path, "It ended with an error: The server stopped. Replayed ")
	v.get("/bulk/none").want(404, `This process knows no bulk action "none".`, "The audit log has all that it changed.")
}

// Sessions see only the bulk actions of queues that their token may see, and no terms without the
// scope for content.
func TestDB2SeenByTokens(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	stock.makeDead(t, "emails", "timeout after %d ms", 3)
	token, err := stock.CreateToken(t.Context(), posthaste.Token{Name: "some", Scopes: []posthaste.Scope{posthaste.ScopeOperate}, Queues: []string{"emails"}})
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t, stock)
	admin := s.viewer(posthaste.ScopeAdmin)
	run := func(path string, verb string) string {
		return admin.send(admin.get(path).want(200).form("/" + verb)).want(200).at.Path
	}
	id := stock.newestDead(t, "emails").String()
	emails := []string{run("/dead-letters/replay?id="+id, "replay"), run("/dead-letters/replay?queue=emails", "replay")}
	others := []string{run("/messages/cancel?term=secret-term", "cancel"), run("/dead-letters/discard?all=1", "discard")}
	limited := s.viewer("")
	f := limited.get("/sign-in").form("/sign-in")
	f.Values.Set("token", token)
	limited.send(f).want(200)
	list := limited.get("/bulk").want(200)
	for _, path := range emails {
		limited.get(path).want(200, "Replayed")
		if !strings.Contains(list.body, path) {
			t.Errorf("%s is not in the list", path)
		}
	}
	for _, path := range others {
		limited.get(path).want(403)
		if strings.Contains(list.body, path) {
			t.Errorf("%s is in the list", path)
		}
		stop := limited.get("/messages").form("/sign-out")
		stop.Action = s.url + path + "/stop"
		limited.send(stop).want(403)
	}
	s.viewer(posthaste.ScopeOperate).get(others[0]).want(200, "term = …").lacks("secret-term")
	s.viewer(posthaste.ScopeReadPayload).get(others[0]).want(200, "term = secret-term")
}

// endless is a store with more dead letters and messages than can be counted.
type endless struct{ *stocked }

func (e *endless) DeadLetters(ctx context.Context, f posthaste.DeadLetterFilter) (posthaste.Page[posthaste.DeadLetter], error) {
	return posthaste.Page[posthaste.DeadLetter]{Items: []posthaste.DeadLetter{{ID: 7, Queue: "emails"}}, Next: 7}, nil
}

func (e *endless) Messages(ctx context.Context, f posthaste.MessageFilter) (posthaste.Page[posthaste.MessageInfo], error) {
	waits := []posthaste.MessageState{{Subscription: posthaste.DefaultSubscription, State: posthaste.StateReady}}
	return posthaste.Page[posthaste.MessageInfo]{Items: []posthaste.MessageInfo{{ID: 7, Queue: "emails", Subscriptions: waits}}, Next: 7}, nil
}

// Messages that cannot be counted in time are not changed.
func TestDB2TooManyToCount(t *testing.T) {
	t.Parallel()
	v := newSite(t, &endless{newStock(t)}, func(c *dashboard.Config) { c.Timeout = 200 * time.Millisecond }).viewer(posthaste.ScopeOperate)
	v.get("/dead-letters/replay?queue=emails").want(400, "could not be counted within 100 ms. At least ", "Narrow the filter, for example by the time of death.")
	v.get("/messages/cancel?queue=emails").want(400, "could not be counted within 100 ms. At least ", "Narrow the filter")
}

// The records of a bulk action stay when messages are erased, so they name no key, reference, term
// or error of a filter.
func TestRecordsOfBulkActionsHaveNoPersonalData(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	stock.makeDead(t, "emails", "no such user ada@example.com %d", 3)
	v := newSite(t, stock).viewer(posthaste.ScopeOperate)
	v.send(v.get("/dead-letters/replay?queue=emails&error=ada@example.com").want(200, "Filter: error = ").form("/replay")).want(200, "Replayed 3 messages.")
	v.get("/audit").want(200, "queue = emails, error = …) replay emails").lacks("ada@")
}
