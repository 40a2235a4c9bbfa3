package dashboard_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/dashboard"
)

// states returns how many messages of a queue are in each state.
func (s *stocked) states(t *testing.T, queue string) map[posthaste.State]int {
	t.Helper()
	counts, f := map[posthaste.State]int{}, posthaste.MessageFilter{Queue: queue, Limit: 1000}
	for {
		found, err := s.Messages(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range found.Items {
			counts[m.Subscriptions[0].State]++
		}
		if f.Before = found.Next; f.Before == 0 {
			return counts
		}
	}
}

// later returns messages that are due in an hour.
func later(queue, kind string, n int) []posthaste.Message {
	all := make([]posthaste.Message, n)
	for i := range all {
		all[i] = posthaste.Message{Queue: queue, Kind: kind, Payload: i, Delay: time.Hour}
	}
	return all
}

// All that match a filter is cancelled, rescheduled or run: exactly the counted messages, and nothing
// that was sent later.
func TestDB2ChangeAllThatMatch(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	v := newSite(t, stock).viewer(posthaste.ScopeOperate)
	stock.send(t, later("emails", "digest", 1250)...)
	stock.send(t, later("emails", "welcome", 30)...)
	list := v.get("/messages?queue=emails&kind=digest")
	run := v.follow(list, "Run all that match now").want(200, "Exactly 1,250 messages will change: all that match and are scheduled or retrying.", "Filter: kind = digest", "/v1/messages?kind=digest&queue=emails", "posthaste message run ID")
	cancel := v.follow(list, "Cancel all that match").want(200, "Exactly 1,250 messages will change", "posthaste message cancel ID")

	stock.send(t, later("emails", "digest", 5)...) // after the confirmation
	v.send(run.form("/run")).want(200, "Made due now: 1,250 messages.", "Filter: queue = emails , kind = digest")
	if got := stock.states(t, "emails"); got[posthaste.StateReady] != 1250 || got[posthaste.StateScheduled] != 35 {
		t.Errorf("after running: %v", got)
	}

	// Workers take some of those that were confirmed: the others are cancelled.
	stock.bury(t, "emails", "declined %d", 250)
	v.send(cancel.form("/cancel")).want(200, "Cancelled ", "messages.")
	got := stock.states(t, "emails")
	if got[posthaste.StateDead] < 250 || got[posthaste.StateReady] != 0 || got[posthaste.StateCancelled]+got[posthaste.StateDead] != 1250 || got[posthaste.StateScheduled] != 35 {
		t.Errorf("after cancelling: %v", got)
	}

	form := v.get("/messages?queue=emails&state=scheduled").form("/messages/reschedule")
	form.Values.Set("at", "2031-02-03T04:05")
	ask := v.send(form).want(200, "Exactly 35 messages will change: all that match and are scheduled.", "are due at 2031-02-03T04:05:00Z, in ", `posthaste message reschedule ID 2031-02-03T04:05:00Z`)
	v.send(ask.form("/reschedule")).want(200, "Rescheduled 35 messages.", "at = 2031-02-03T04:05:00Z")
	found, err := stock.Messages(t.Context(), posthaste.MessageFilter{Queue: "emails", State: posthaste.StateScheduled})
	if err != nil || len(found.Items) != 35 || !found.Items[0].Subscriptions[0].DueAt.Equal(time.Date(2031, 2, 3, 4, 5, 0, 0, time.UTC)) {
		t.Errorf("%d messages, due at %s, %v", len(found.Items), found.Items[0].Subscriptions[0].DueAt, err)
	}
	v.get("/audit").want(200, "at = 2031-02-03T04:05:00Z) reschedule emails 35 messages, from ")
}

// If more match than were confirmed, nothing changes.
func TestDB2MoreMatchThanConfirmed(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	v := newSite(t, stock).viewer(posthaste.ScopeOperate)
	ids := stock.send(t, later("emails", "digest", 4)...)
	for _, id := range ids[:2] {
		if _, err := stock.RunMessage(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	form := v.get("/messages/cancel?queue=emails&state=ready").want(200, "Exactly 2 messages").form("/cancel")
	form.Values.Set("highest", ids[3].String())
	if _, err := stock.RunMessage(t.Context(), ids[2]); err != nil {
		t.Fatal(err)
	}
	v.send(form).want(409, "Nothing was changed", `count was confirmed as "2", and is now "3"`)
	if got := stock.states(t, "emails"); got[posthaste.StateCancelled] != 0 {
		t.Errorf("%v", got)
	}
}

// A selection of messages is changed, as far as their states allow it.
func TestDB2ChangeSelection(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	v := newSite(t, stock).viewer(posthaste.ScopeOperate)
	ids := stock.send(t, later("emails", "digest", 3)...)
	pick := v.get("/messages?queue=emails").form("/messages/cancel")
	pick.Values.Add("id", ids[0].String())
	pick.Values.Add("id", ids[1].String())
	pick.Values.Add("id", stock.done.String())
	ask := v.send(pick).want(200, "Exactly 2 messages", "posthaste message cancel "+ids[0].String()+" posthaste message cancel "+ids[1].String())
	if _, err := stock.Cancel(t.Context(), ids[0]); err != nil { // someone is faster
		t.Fatal(err)
	}
	v.send(ask.form("/cancel")).want(200, "Cancelled 1 message.")
	if got := stock.states(t, "emails"); got[posthaste.StateCancelled] != 2 || got[posthaste.StateScheduled] != 1 {
		t.Errorf("%v", got)
	}
	v.get("/messages/run?id="+stock.done.String()).want(404, "No message matches that is scheduled or retrying.")
	v.get("/messages/run?id="+ids[2].String()).want(200, "Run 1 message")
	v.get("/messages/reschedule?id="+ids[2].String()).want(400, "must be a time in UTC such as 2026-10-12T08:30, or a delay such as 90m")
}

// A missing filter never means everything, and a token that is limited to queues changes nothing of
// others.
func TestDB4NoFilterChangesNoMessages(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	s := newSite(t, stock)
	v := s.viewer(posthaste.ScopeAdmin)
	before := stock.state(t)
	csrf := v.get("/").form("/sign-out").Values.Get("csrf")
	post := func(verb, query string) *shown {
		f := form{Method: "POST", Action: s.url + "/messages/" + verb}
		f.Values, _ = url.ParseQuery(query)
		f.Values.Set("csrf", csrf)
		return v.send(f)
	}
	for _, verb := range []string{"cancel", "run", "reschedule"} {
		for _, query := range []string{"", "queue=", "queue=%20&kind=", "all=1", "ids=", "id=x", "id=2&queue=orders", "state=done", "state=none", "from=yesterday", "count=3&highest=3"} {
			v.get("/messages/" + verb + "?at=1h&" + query).want(400)
			post(verb, "at=1h&"+query).want(400)
		}
		post(verb, "at=1h&queue=orders").want(409, "Nothing was changed")
		post(verb, "at=1h&queue=orders&count=1").want(409, "Nothing was changed")
		post(verb, "at=1h&ids="+stock.ready.String()+"&count=1&highest=9").want(409, "Nothing was changed")
	}
	if stock.state(t) != before {
		t.Error("something was changed without a filter")
	}
	token, err := stock.CreateToken(t.Context(), posthaste.Token{Name: "some", Scopes: []posthaste.Scope{posthaste.ScopeOperate}, Queues: []string{"emails"}})
	if err != nil {
		t.Fatal(err)
	}
	limited := s.viewer("")
	f := limited.get("/sign-in").form("/sign-in")
	f.Values.Set("token", token)
	limited.send(f).want(200)
	before = stock.state(t)
	for _, query := range []string{"queue=orders", "kind=created", "state=scheduled", "id=" + stock.ready.String(), "term=secret-term"} {
		limited.get("/messages/cancel?" + query).want(403)
	}
	s.viewer(posthaste.ScopeOperate).get("/messages/cancel?term=secret-term").want(403)
	if stock.state(t) != before {
		t.Error("something was changed")
	}
}

// unruly is a store whose cancels fail for some messages.
type unruly struct {
	*stocked
	fails func(id posthaste.MessageID) bool
}

func (u *unruly) Cancel(ctx context.Context, id posthaste.MessageID) ([]posthaste.Withdrawal, error) {
	if u.fails(id) {
		return nil, errors.New("the disk is full")
	}
	return u.stocked.Cancel(ctx, id)
}

// An error of one message does not end a bulk action; ten in a row do.
func TestDB2ErrorsOfMessages(t *testing.T) {
	t.Parallel()
	u := &unruly{stocked: newStock(t)}
	ids := u.send(t, later("emails", "digest", 60)...)
	u.fails = func(id posthaste.MessageID) bool { return id == ids[30] }
	v := newSite(t, u).viewer(posthaste.ScopeOperate)
	v.send(v.get("/messages/cancel?queue=emails").form("/cancel")).want(200, "Cancelled 59 messages.", "Failed 1", "The last error of a message: message "+ids[30].String()+": the disk is full")
	u.fails = func(posthaste.MessageID) bool { return true }
	u.send(t, later("emails", "welcome", 60)...)
	v.send(v.get("/messages/cancel?queue=emails&kind=welcome").form("/cancel")).want(200, "failed", "It ended with an error: message ", "Cancelled 0 messages.", "Failed 10", "Left 50", "Cancel the rest")
}

// A message is rescheduled to a time, or by a delay, on its page.
func TestDB7Reschedule(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	v := newSite(t, stock).viewer(posthaste.ScopeOperate)
	at := "/messages/" + stock.ready.String()
	form := v.get(at).form("/reschedule")
	for _, wrong := range []string{"", "tomorrow", "25:00"} {
		form.Values.Set("at", wrong)
		v.send(form).want(400, "a delay such as 90m")
	}
	form.Values.Set("at", "2031-02-03T04:05:06Z")
	ask := v.send(form).want(200, "is due at 2031-02-03T04:05:06Z, in ", "posthaste message reschedule "+stock.ready.String()+" 2031-02-03T04:05:06Z")
	v.send(ask.form("/reschedule")).want(200, "Rescheduled.", "due 2031-02-03 04:05:06 UTC")
	form.Values.Set("at", "-1s")
	v.send(v.send(form).want(200, "which means now").form("/reschedule")).want(200, "Rescheduled.", "ready")
	v.get(fmt.Sprintf("/messages/%s/reschedule?at=1h", stock.done)).want(409, "cannot be changed in this way")
}

// A running message is asked to stop.
func TestDB7StopRunningMessage(t *testing.T) {
	t.Parallel()
	stock := newStock(t)
	v := newSite(t, stock).viewer(posthaste.ScopeOperate)
	id := stock.send(t, posthaste.Message{Queue: "emails", Payload: 1})[0]
	got, err := stock.Receive(t.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "emails"}, Max: 1, Lease: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	page := v.get("/messages/"+id.String()).want(200, "running")
	v.send(v.follow(page, "Cancel").want(200, "its holder is asked to stop").form("/cancel")).want(200, "Cancelled.")
	told, err := stock.Extend(t.Context(), posthaste.ExtendRequest{Deliveries: []posthaste.DeliveryID{got.Deliveries[0].ID}, Lease: time.Minute})
	if text := fmt.Sprintf("%+v", told); err != nil || !strings.Contains(text, fmt.Sprint(got.Deliveries[0].ID)) {
		t.Errorf("the holder is told %s, %v", text, err)
	}
}

// bottomless is a store whose searches by state come to no end.
type bottomless struct{ posthaste.Store }

func (bottomless) Messages(_ context.Context, f posthaste.MessageFilter) (posthaste.Page[posthaste.MessageInfo], error) {
	return posthaste.Page[posthaste.MessageInfo]{Next: 4711}, nil
}

func (e bottomless) Queues(ctx context.Context, names ...string) ([]posthaste.QueueInfo, error) {
	queues, err := e.Store.Queues(ctx, names...)
	for i := range queues {
		queues[i].Subscriptions[0].Depth = 1 << 60
	}
	return queues, err
}

// A bulk action by a state of which the count would not end in time is refused long before.
func TestDB7HopelessCountIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t, bottomless{newStock(t)}, func(c *dashboard.Config) { c.Timeout = 20 * time.Second })
	begun := time.Now()
	s.viewer(posthaste.ScopeOperate).get("/messages/cancel?queue=emails&state=scheduled").want(400, "Nothing was changed: ", "a search by the state scheduled looks at each of them", "At most 10 s are allowed", "purge it")
	if took := time.Since(begun); took > 8*time.Second {
		t.Errorf("it took %s", took)
	}
}

// sparse is a store whose searches of dead letters are cut short before they find many.
type sparse struct {
	posthaste.Store
	calls *atomic.Int64
}

func (s sparse) DeadLetters(context.Context, posthaste.DeadLetterFilter) (posthaste.Page[posthaste.DeadLetter], error) {
	n := s.calls.Add(1)
	return posthaste.Page[posthaste.DeadLetter]{Next: posthaste.MessageID(100_000 - n), Items: []posthaste.DeadLetter{{ID: posthaste.MessageID(100_001 - n), Queue: "emails", Kind: "charge", Error: "no answer"}}}, nil
}

// The page of dead letters does not read all of them to find the few that match.
func TestDB3GroupsOfASparseSearch(t *testing.T) {
	t.Parallel()
	s := sparse{newStock(t), &atomic.Int64{}}
	newSite(t, s).viewer(posthaste.ScopeRead).get("/dead-letters?kind=charge").want(200, "no answer", "Of the newest 1 dead letters that match.")
	if n := s.calls.Load(); n != 2 {
		t.Errorf("the page made %d searches, want one for the groups and one for the list", n)
	}
}
