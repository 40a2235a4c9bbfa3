//go:build unix

package acceptance

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
	"github.com/posthaste-mq/posthaste/internal/catcher"
)

// Mails in error are listed, inspected, resent and discarded over HTTP. Each action is
// recorded, and a resent mail is sent once. The command line does the same in its script
// dead.txtar.
func TestEM4_MailsInError(t *testing.T) {
	t.Parallel()
	p := newPost(t, time.Minute)
	fault := p.server.Inject(catcher.Fault{Stage: catcher.StageRcpt, Times: 4, Code: 550})
	var ids []posthaste.MessageID
	for i := range 4 {
		m := simple(fmt.Sprintf("ada%d@example.com", i))
		m.Reference = fmt.Sprint("order-", i)
		ids = append(ids, p.send(m))
		if f := p.ends(ids[i]); f.Status != email.StatusError {
			t.Fatalf("mail %d is %s", i, f.Status)
		}
	}
	if fault.Hits() != 4 {
		t.Fatalf("%d mails were refused, want 4", fault.Hits())
	}
	list := func(query string) (found []posthaste.MessageID) {
		var shown []struct {
			ID       posthaste.MessageID
			Error    string
			Payload  json.RawMessage
			Attempts []posthaste.Attempt
		}
		p.must(json.Unmarshal(p.api.want(200, "GET", "/v1/dead-letters?queue=emails"+query, "").entries(t), &shown))
		for _, d := range shown {
			if d.Error == "" || len(d.Attempts) != 1 || len(d.Payload) < 10 {
				t.Errorf("it is shown as %+v", d)
			}
			found = append(found, d.ID)
		}
		return found
	}
	newest := []posthaste.MessageID{ids[3], ids[2], ids[1], ids[0]}
	if got := list(""); !slices.Equal(got, newest) {
		t.Errorf("in error are %v, want %v", got, newest)
	}
	for query, want := range map[string][]posthaste.MessageID{"&error=injected+at+rcpt": newest, "&term=ada2@example.com": newest[1:2], "&reference=order-0": newest[3:], "&error=injected+at+mail": nil} {
		if got := list(query); !slices.Equal(got, want) {
			t.Errorf("by %s %v are found, want %v", query, got, want)
		}
	}
	var found []follow
	p.must(json.Unmarshal(p.api.want(200, "GET", "/v1/emails?status=error", "").entries(t), &found))
	if len(found) != 4 || found[0].ID != ids[3] {
		t.Errorf("with status error are %+v", found)
	}

	p.api.want(200, "POST", "/v1/dead-letters/replay", `{"ids":["`+ids[0].String()+`"]}`)
	p.api.want(404, "POST", "/v1/dead-letters/replay", `{"ids":["`+ids[0].String()+`"]}`)
	p.api.want(200, "POST", "/v1/dead-letters/replay", `{"filter":{"queue":"emails","reference":"order-1"}}`)
	p.api.want(200, "POST", "/v1/dead-letters/discard", `{"ids":["`+ids[2].String()+`"]}`)
	p.api.want(200, "POST", "/v1/dead-letters/discard", `{"filter":{"term":"ada3@example.com"}}`)
	for _, id := range ids[:2] {
		p.until("the mail is sent", func() bool {
			var f follow
			p.must(json.Unmarshal(p.api.want(200, "GET", "/v1/emails/"+id.String(), "").body, &f))
			return f.Status == email.StatusSent && len(f.Attempts) == 2
		})
	}
	p.settled(email.Queue)
	var to []string
	for _, m := range p.server.Mails() {
		to = append(to, m.To...)
	}
	if want := []string{"ada0@example.com", "ada1@example.com"}; !slices.Equal(sortedCopy(to), want) {
		t.Errorf("mails went to %v, want %v, each once", to, want)
	}
	var actions []struct {
		By, Action string
		MessageID  posthaste.MessageID `json:"message_id"`
	}
	p.must(json.Unmarshal(p.api.want(200, "GET", "/v1/actions?queue=emails", "").entries(t), &actions))
	var told []string
	for _, a := range actions {
		told = append(told, fmt.Sprintf("%s %s %d", a.By, a.Action, slices.Index(ids, a.MessageID)))
	}
	if want := []string{"http discard 3", "http discard 2", "http replay 1", "http replay 0", "posthaste create -1"}; !slices.Equal(told, want) {
		t.Errorf("on record is %q, want %q", told, want)
	}
}

// A mail that was sent by SQL is found by its recipients like one sent over HTTP, after the
// sink had it: sent, in error, and in the history. It is also erased by them.
func TestEM4_SQLMailsAreFoundByRecipient(t *testing.T) {
	t.Parallel()
	p := newPost(t, time.Minute)
	conn := p.conn()
	p.server.Inject(catcher.Fault{Stage: catcher.StageRcpt, Times: 1, Code: 550})
	send := func(mail string) posthaste.MessageID {
		t.Helper()
		return posthaste.MessageID(one[int64](p.stage, conn, "select posthaste.send('emails', $1::jsonb)", mail))
	}
	refused := send(`{"from": "shop@example.com", "to": ["Ada <Ada@Example.com>"], "subject": "a", "text": "hi"}`)
	if f := p.ends(refused); f.Status != email.StatusError {
		t.Fatalf("the first mail is %s", f.Status)
	}
	sent := send(`{"from": "shop@example.com", "to": ["bob@example.com"], "bcc": ["ada@example.com"], "subject": "b", "text": "hi"}`)
	if f := p.ends(sent); f.Status != email.StatusSent {
		t.Fatalf("the second mail is %s", f.Status)
	}
	faulty := send(`{"from": "no-address", "to": ["ada@example.com", "no address\u0001"], "subject": "c", "text": "hi"}`)
	if f := p.ends(faulty); f.Status != email.StatusError {
		t.Fatalf("the third mail is %s", f.Status)
	}
	m := simple("ada@example.com")
	m.Reference = "order-7"
	named := p.send(m)
	p.ends(named)
	find := func(path string) (found []posthaste.MessageID) {
		t.Helper()
		var shown []struct{ ID posthaste.MessageID }
		p.must(json.Unmarshal(p.api.want(200, "GET", path, "").entries(t), &shown))
		for _, s := range shown {
			found = append(found, s.ID)
		}
		return found
	}
	for path, want := range map[string][]posthaste.MessageID{
		"/v1/emails?recipient=Ada@example.com":                   {named, faulty, sent, refused},
		"/v1/emails?recipient=ada@example.com&status=sent":       {named, sent},
		"/v1/emails?recipient=bob@example.com":                   {sent},
		"/v1/dead-letters?queue=emails&term=ada@example.com":     {faulty, refused},
		"/v1/emails?recipient=ada@example.com&reference=order-7": {named},
	} {
		if got := find(path); !slices.Equal(got, want) {
			t.Errorf("%s finds %v, want %v", path, got, want)
		}
	}
	var erased []posthaste.MessageID
	rows, err := p.engine.Erase(posthaste.WithActor(t.Context(), "privacy"), "ada@example.com", 0)
	p.must(err)
	for _, r := range rows.Items {
		if r.Pending {
			t.Errorf("mail %d is pending", r.MessageID)
		}
		erased = append(erased, r.MessageID)
	}
	if want := []posthaste.MessageID{named, faulty, sent, refused}; !slices.Equal(erased, want) {
		t.Errorf("erased are %v, want %v", erased, want)
	}
	if got := find("/v1/emails?recipient=bob@example.com"); got != nil {
		t.Errorf("after erasing %v are found", got)
	}
}

// By business reference and by recipient, a mail's whole story is found in under 50 ms among
// very many (POSTHASTE_TEST_ROWS, 10 million at full size), half of them in the ring and half
// in the history.
func TestEM5_StoryIsFoundAmongMany(t *testing.T) {
	t.Parallel()
	n := size(20_000, 10_000_000)
	if v := os.Getenv("POSTHASTE_TEST_ROWS"); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
	}
	s := newStage(t)
	s.must(s.engine.CreateQueue(s.ctx, email.Queue, posthaste.QueueOptions{Retention: 90 * 24 * time.Hour}))
	conn := s.conn()
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	const mail = `'{"from": "shop@example.com", "to": ["user@example.com"], "subject": "Hello", "text": "Hi"}'`
	for from := 1; from <= n/2; from += 1_000_000 {
		upTo := min(from+999_999, n/2)
		exec(`with put as (
				insert into posthaste.entries_plain (queue_id, more, payload)
				select q.id, posthaste.more_of(null, 'order-' || g, null, jsonb_build_array('user' || g || '@example.com')), `+mail+` from posthaste.queue_settings q, generate_series($1::int, $2::int) g where q.name = 'emails'
				returning pos, xid, queue_id, lane, more)
			insert into posthaste.words (slot, message_id, pos, xid, queue_id, lane, word)
			select p.pos >> 22 & 15, p.pos, p.pos, p.xid, p.queue_id, p.lane, unnest(posthaste.words_of(p.more ->> 'reference', posthaste.texts_of(p.more -> 'terms'))) from put p`, from, upTo)
		exec(`insert into posthaste.history (part, subscription, queue_id, message_id, created_at, settled_at, expires_at, state, reference, terms, attempts)
			select g % 5, 0, q.id, g + (1::bigint << 40), now(), now(), now() + interval '90 days', 'done', 'old-' || g, array['old' || g || '@example.com'],
			       jsonb_build_array(jsonb_build_object('attempt', 1, 'outcome', 'done', 'worker', 'w', 'claimed_at', now(), 'ended_at', now(), 'receipt', '{"message_id": "x"}'::jsonb))
			  from posthaste.queue_settings q, generate_series($1::int, $2::int) g where q.name = 'emails'`, from, upTo)
	}
	exec(`insert into posthaste.history_parts (part, until) select g, now() + interval '100 days' from generate_series(0, 4) g`)
	exec(`select posthaste.summarize()`)
	for _, c := range []struct {
		what     string
		filter   posthaste.MessageFilter
		attempts int
	}{
		{"reference, in the ring", posthaste.MessageFilter{Queue: email.Queue, Reference: fmt.Sprint("order-", n/3)}, 0},
		{"recipient, in the ring", posthaste.MessageFilter{Queue: email.Queue, Term: fmt.Sprintf("user%d@example.com", n/4)}, 0},
		{"reference, in the history", posthaste.MessageFilter{Queue: email.Queue, Reference: fmt.Sprint("old-", n/3)}, 1},
		{"recipient, in the history", posthaste.MessageFilter{Queue: email.Queue, Term: fmt.Sprintf("old%d@example.com", n/4)}, 1},
	} {
		var times []time.Duration
		pages := 1 << 60
		for range 21 {
			began := time.Now()
			found, err := s.engine.Messages(t.Context(), c.filter)
			times = append(times, time.Since(began))
			if err != nil || len(found.Items) != 1 || found.Items[0].Reference == "" && c.filter.Reference != "" || len(found.Items[0].Subscriptions) != 1 {
				t.Fatalf("by %s: %+v, %v", c.what, found.Items, err)
			}
			// The whole story: mails in the ring have no attempt yet.
			attempts := found.Items[0].Subscriptions[0].Attempts
			if c.attempts != len(attempts) || c.attempts > 0 && (attempts[0].Outcome != posthaste.OutcomeDone || attempts[0].Worker != "w" || len(attempts[0].Receipt) == 0) {
				t.Fatalf("by %s: the story is %+v, want %d attempts", c.what, attempts, c.attempts)
			}
		}
		slices.Sort(times)
		took := times[len(times)/2]
		var plan []struct {
			Plan struct {
				Hit  int `json:"Shared Hit Blocks"`
				Read int `json:"Shared Read Blocks"`
			}
		}
		for range 4 { // the minimum, because the first search also makes the plans
			s.must(json.Unmarshal(one[[]byte](s, conn, `explain (analyze, buffers, format json) select * from posthaste.list_messages('emails', nullif($1, ''), nullif($2, ''))`, c.filter.Reference, c.filter.Term), &plan))
			pages = min(pages, plan[0].Plan.Hit+plan[0].Plan.Read)
		}
		t.Logf("by %s among %d: %v, %d pages", c.what, n, times, pages)
		// On each change the number of pages is checked, which does not depend on the machine.
		if full() && took > 50*time.Millisecond {
			t.Errorf("by %s it takes %v", c.what, took)
		}
		// The height of an index and the rows of the search itself, and not the log.
		if pages > 600 {
			t.Errorf("by %s it reads %d pages", c.what, pages)
		}
	}
}
