//go:build unix

package postgres_test

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/postgres"
)

// adminTest is an engine on a database of its own, with one worker.
type adminTest struct {
	*testing.T
	ctx context.Context
	*postgres.Engine
	pool   *pgxpool.Pool
	worker posthaste.WorkerID
	number int64
}

func newAdminTest(t *testing.T, options posthaste.QueueOptions) *adminTest {
	t.Helper()
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	config, err := pgxpool.ParseConfig(testpg.New(t))
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 8
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	a := &adminTest{T: t, ctx: ctx, Engine: postgres.New(pool), pool: pool}
	a.check(a.CreateQueue(a.ctx, "q", options))
	a.worker, err = a.Register(a.ctx, posthaste.WorkerInfo{Name: "host/1", Lease: time.Hour})
	a.check(err)
	return a
}

func (a *adminTest) check(err error) {
	a.Helper()
	if err != nil {
		a.Fatal(err)
	}
}

func (a *adminTest) exec(sql string, args ...any) {
	a.Helper()
	_, err := a.pool.Exec(a.ctx, sql, args...)
	a.check(err)
}

func (a *adminTest) send(messages ...posthaste.Message) []posthaste.MessageID {
	a.Helper()
	for i := range messages {
		if messages[i].Queue == "" {
			messages[i].Queue = "q"
		}
	}
	ids, err := posthaste.IDs(a.Send(a.ctx, messages...))
	a.check(err)
	return ids
}

// claim claims until it gets a delivery, because a retry may fall due shortly.
func (a *adminTest) claim(most int) []posthaste.RawDelivery {
	a.Helper()
	for {
		a.number++
		reply, err := a.Claim(a.ctx, posthaste.ClaimRequest{Worker: a.worker, Number: a.number, QueueRef: posthaste.QueueRef{Queue: "q"}, Max: most, AllowAlone: true})
		a.check(err)
		if len(reply.Deliveries) > 0 {
			return reply.Deliveries
		}
		a.check(a.ctx.Err())
	}
}

func (a *adminTest) settle(settlements ...posthaste.Settlement) {
	a.Helper()
	results, err := a.Settle(a.ctx, settlements)
	a.check(err)
	for _, r := range results {
		if !r.Settled || r.Err != nil {
			a.Fatalf("not settled: %+v", r)
		}
	}
}

// expect checks a message's state and the outcomes of its attempts in order, "" for a running
// one.
func (a *adminTest) expect(id posthaste.MessageID, state posthaste.State, outcomes ...posthaste.Outcome) posthaste.MessageState {
	a.Helper()
	m, err := a.Message(a.ctx, id)
	a.check(err)
	if m.ID != id || len(m.Subscriptions) != 1 {
		a.Fatalf("message %d is told as %+v", id, m)
	}
	s := m.Subscriptions[0]
	var were []posthaste.Outcome
	for i, at := range s.Attempts {
		were = append(were, at.Outcome)
		if at.Attempt != i+1 || at.ClaimedAt.IsZero() || at.EndedAt.IsZero() != (at.Outcome == "") || at.EndedAt.After(time.Now().Add(time.Hour)) {
			a.Errorf("attempt %d is told as %+v", i+1, at)
		}
	}
	if s.State != state || !slices.Equal(were, outcomes) {
		a.Fatalf("message %d is %s with attempts %q, want %s %q", id, s.State, were, state, outcomes)
	}
	return s
}

func (a *adminTest) code(err error, code posthaste.Code, field string) {
	a.Helper()
	var e *posthaste.Error
	if posthaste.CodeOf(err) != code {
		a.Fatalf("error %v, want code %s", err, code)
	}
	if e, _ = err.(*posthaste.Error); e == nil || e.Field != field {
		a.Fatalf("error %#v, want field %q", err, field)
	}
}

// If the space of a replayed message's new run is reclaimed before that of its old one, the
// message is not shown as dead, because it may be done.
func TestReplayedAndReclaimedIsUnknown(t *testing.T) {
	a := newAdminTest(t, posthaste.QueueOptions{})
	id := a.send(posthaste.Message{Payload: "p"})[0]
	a.settle(posthaste.Settlement{Delivery: a.claim(1)[0].ID, Outcome: posthaste.OutcomeDead, Error: "boom"})
	_, err := a.Replay(posthaste.WithActor(a.ctx, "ann"), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{id}})
	a.check(err)
	a.settle(posthaste.Settlement{Delivery: a.claim(1)[0].ID, Outcome: posthaste.OutcomeDone})
	a.expect(id, posthaste.StateDone, posthaste.OutcomeDead, posthaste.OutcomeDone)
	_, err = a.pool.Exec(a.ctx, `delete from posthaste.entries_other where message_id = $1`, int64(id)) // as if its slot were truncated
	a.check(err)
	if m, err := a.Message(a.ctx, id); posthaste.CodeOf(err) != posthaste.CodeNotFound {
		t.Errorf("shown as %+v, %v", m.Subscriptions, err)
	}
}

// A list by state that stopped at the newest 3,000 messages returns where it stopped.
func TestListingThatIsCutSaysSo(t *testing.T) {
	a := newAdminTest(t, posthaste.QueueOptions{})
	messages := make([]posthaste.Message, 3_001)
	for i := range messages {
		messages[i].Payload = i
	}
	ids := a.send(messages...)
	config := a.pool.Config().ConnConfig.Copy()
	var notices []*pgconn.Notice
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { notices = append(notices, n) }
	conn, err := pgx.ConnectConfig(a.ctx, config)
	a.check(err)
	defer conn.Close(context.Background())
	for before, cutAt := range map[posthaste.MessageID]posthaste.MessageID{ids[3_000] + 1: ids[1], ids[2_999]: 0} {
		found, err := a.Messages(a.ctx, posthaste.MessageFilter{Queue: "q", State: posthaste.StateDone, Before: before})
		a.check(err)
		if len(found.Items) != 0 || found.Next != cutAt {
			t.Errorf("before %s: found %d, cut at %d, want %d", before, len(found.Items), found.Next, cutAt)
		}
		want := ""
		if cutAt != 0 {
			want = fmt.Sprintf("continue with before => %d", cutAt)
		}
		notices = nil
		_, err = conn.Exec(a.ctx, `select from posthaste.list_messages('q', state => 'done', before => $1)`, int64(before))
		a.check(err)
		if want == "" && len(notices) != 0 || want != "" && (len(notices) != 1 || !strings.Contains(notices[0].Hint, want)) {
			t.Errorf("before %s: %+v, want %q", before, notices, want)
		}
	}
	// A complete search clears the setting of the one before.
	_, err = conn.Exec(a.ctx, `begin; select from posthaste.list_messages('q', state => 'done'); select from posthaste.list_messages('q', max => 1)`)
	a.check(err)
	var at string
	a.check(conn.QueryRow(a.ctx, `select current_setting('posthaste.list_before')`).Scan(&at))
	if at != "" {
		t.Errorf("after a search that was not cut, %q", at)
	}
}

func TestDS5_ReplayAndRemoval(t *testing.T) {
	a := newAdminTest(t, posthaste.QueueOptions{MaxAttempts: 2, BackoffBase: time.Microsecond, BackoffMax: time.Microsecond})
	id := a.send(posthaste.Message{Payload: "p", Reference: "r", Terms: []string{"ann@example.org"}, Kind: "k"})[0]
	die := func() {
		for range 2 {
			d := a.claim(10)[0]
			if d.MessageID != id || string(d.Payload) != `"p"` || d.Reference != "r" || d.Kind != "k" {
				t.Fatalf("handed out %+v", d)
			}
			a.settle(posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.OutcomeRetried, Error: "boom"})
		}
	}
	dead := func() []posthaste.DeadLetter {
		list, err := a.DeadLetters(a.ctx, posthaste.DeadLetterFilter{Queue: "q"})
		a.check(err)
		return list.Items
	}
	die()
	a.expect(id, posthaste.StateDead, posthaste.OutcomeRetried, posthaste.OutcomeDead)
	list := dead()
	if len(list) != 1 || list[0].ID != id || list[0].Error != "boom" || len(list[0].Attempts) != 2 || string(list[0].Payload) != `"p"` ||
		list[0].Subscription != posthaste.DefaultSubscription || !slices.Equal(list[0].Terms, []string{"ann@example.org"}) || list[0].DiedAt.IsZero() {
		t.Fatalf("dead letters %+v", list)
	}

	were, err := a.Replay(posthaste.WithActor(a.ctx, "ann"), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{id, id, 1 << 40}})
	a.check(err)
	if !slices.Equal(were.Items, []posthaste.MessageID{id}) || len(dead()) != 0 {
		t.Fatalf("replayed %v, left %v", were.Items, dead())
	}
	a.expect(id, posthaste.StateReady, posthaste.OutcomeRetried, posthaste.OutcomeDead)
	were, err = a.Replay(posthaste.WithActor(a.ctx, "ann"), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{id}})
	a.code(err, posthaste.CodeNotFound, "message_ids")
	if len(were.Items) != 0 || !strings.Contains(err.Error(), fmt.Sprintf("no dead letter to act on: message %d (replayed by ann at ", id)) {
		t.Fatalf("replayed twice: %v, %v", were.Items, err)
	}
	_, err = a.Replay(posthaste.WithActor(a.ctx, "ann"), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{1 << 40, id}})
	if want := fmt.Sprintf("no dead letter to act on: messages %d (replayed by ann at ", id); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "Z), 1099511627776 (posthaste.list_dead_letters") {
		t.Fatalf("replayed what never was: %v", err)
	}
	die() // all attempts are available again, and their numbers continue
	a.expect(id, posthaste.StateDead, posthaste.OutcomeRetried, posthaste.OutcomeDead, posthaste.OutcomeRetried, posthaste.OutcomeDead)

	were, err = a.Discard(a.ctx, posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{id, 1 << 40}})
	a.check(err)
	if !slices.Equal(were.Items, []posthaste.MessageID{id}) || len(dead()) != 0 {
		t.Fatalf("discarded %v, left %v", were.Items, dead())
	}
	var actions []string
	rows, err := a.pool.Query(a.ctx, `select action || ' by ' || case when by = session_user then 'user' else by end from posthaste.actions where message_id = $1 order by id`, int64(id))
	a.check(err)
	actions, err = pgx.CollectRows(rows, pgx.RowTo[string])
	a.check(err)
	if !slices.Equal(actions, []string{"replay by ann", "discard by user"}) {
		t.Errorf("recorded %q", actions)
	}

	many := make([]posthaste.MessageID, 10_001)
	for i := range many {
		many[i] = posthaste.MessageID(i + 1)
	}
	_, err = a.Replay(a.ctx, posthaste.DeadLetterFilter{IDs: many})
	a.code(err, posthaste.CodeInvalid, "message_ids")
	_, err = a.Discard(a.ctx, posthaste.DeadLetterFilter{IDs: many})
	a.code(err, posthaste.CodeInvalid, "message_ids")
}

func TestDS5_ReplayAtTheSameTime(t *testing.T) {
	a := newAdminTest(t, posthaste.QueueOptions{MaxAttempts: 1})
	ids := a.send(make([]posthaste.Message, 50)...)
	for _, d := range a.claim(100) {
		a.settle(posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.OutcomeRetried, Error: "x"})
	}
	backwards := slices.Clone(ids)
	slices.Reverse(backwards)
	type answer struct {
		ids []posthaste.MessageID
		err error
	}
	answers := make(chan answer)
	for _, order := range [][]posthaste.MessageID{ids, backwards, ids, backwards} {
		go func() {
			were, err := a.Replay(a.ctx, posthaste.DeadLetterFilter{IDs: order})
			answers <- answer{were.Items, err}
		}()
	}
	var all []posthaste.MessageID
	for range 4 {
		got := <-answers
		if got.err != nil && posthaste.CodeOf(got.err) != posthaste.CodeNotFound { // another replay was first
			t.Error(got.err)
		}
		all = append(all, got.ids...)
	}
	slices.Sort(all)
	if !slices.Equal(all, ids) {
		t.Errorf("replayed %v, want each of %v once", all, ids)
	}
}

func TestMessagesByFilter(t *testing.T) {
	a := newAdminTest(t, posthaste.QueueOptions{})
	a.check(a.CreateQueue(a.ctx, "other", posthaste.QueueOptions{Lanes: 4}))
	rare := a.send(posthaste.Message{Queue: "other", Reference: "r1", Terms: []string{"bob@example.org"}}, posthaste.Message{Queue: "other", Delay: time.Hour})
	var many []posthaste.Message
	for i := range 300 {
		many = append(many, posthaste.Message{Reference: fmt.Sprintf("r%d", i%10), Terms: []string{fmt.Sprintf("t%d", i%3), "all"}})
	}
	ids := a.send(many...)
	for i, d := range a.claim(10) {
		outcome := []posthaste.Outcome{posthaste.OutcomeDone, posthaste.OutcomeRetried}[i%2]
		a.settle(posthaste.Settlement{Delivery: d.ID, Outcome: outcome, Error: "x", RetryAfter: time.Hour})
	}
	find := func(f posthaste.MessageFilter) []posthaste.MessageID {
		t.Helper()
		list, err := a.Messages(a.ctx, f)
		a.check(err)
		var found []posthaste.MessageID
		for _, m := range list.Items {
			if f.State != "" && m.Subscriptions[0].State != f.State || m.Payload != nil {
				t.Errorf("found %+v for %+v", m, f)
			}
			found = append(found, m.ID)
		}
		if !slices.IsSortedFunc(found, func(x, y posthaste.MessageID) int { return int(y - x) }) {
			t.Errorf("not newest first: %v", found)
		}
		return found
	}
	same := func(what string, got []posthaste.MessageID, want ...posthaste.MessageID) {
		t.Helper()
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	pick := func(match func(i int) bool) (some []posthaste.MessageID) {
		for i, id := range ids {
			if match(i) {
				some = append(some, id)
			}
		}
		return some
	}
	same("rare queue", find(posthaste.MessageFilter{Queue: "other"}), rare...)
	same("default limit", find(posthaste.MessageFilter{}), ids[200:]...)
	same("limit", find(posthaste.MessageFilter{Queue: "q", Limit: 3}), ids[297:]...)
	same("before", find(posthaste.MessageFilter{Before: ids[3]}), append(slices.Clone(rare), ids[:3]...)...)
	same("all", find(posthaste.MessageFilter{Limit: 1000}), append(slices.Clone(rare), ids...)...)
	same("reference", find(posthaste.MessageFilter{Reference: "r1"}), append(pick(func(i int) bool { return i%10 == 1 }), rare[0])...)
	same("reference in a queue", find(posthaste.MessageFilter{Queue: "other", Reference: "r1"}), rare[0])
	same("term", find(posthaste.MessageFilter{Term: "t2", Limit: 1000}), pick(func(i int) bool { return i%3 == 2 })...)
	same("term with limit", find(posthaste.MessageFilter{Term: "all", Limit: 5, Before: ids[100]}), ids[95:100]...)
	same("recipient", find(posthaste.MessageFilter{Term: "bob@example.org"}), rare[0])
	same("both", find(posthaste.MessageFilter{Reference: "r4", Term: "t1"}), pick(func(i int) bool { return i%10 == 4 && i%3 == 1 })...)
	same("done", find(posthaste.MessageFilter{State: posthaste.StateDone}), ids[0], ids[2], ids[4], ids[6], ids[8])
	same("retrying", find(posthaste.MessageFilter{State: posthaste.StateRetrying, Reference: "r3"}), ids[3])
	same("scheduled", find(posthaste.MessageFilter{State: posthaste.StateScheduled}), rare[1])
	same("dead", find(posthaste.MessageFilter{State: posthaste.StateDead}))
	same("nothing", find(posthaste.MessageFilter{Reference: "none"}))

	_, err := a.Messages(a.ctx, posthaste.MessageFilter{Queue: "none"})
	a.code(err, posthaste.CodeNotFound, "queue")
	_, err = a.Messages(a.ctx, posthaste.MessageFilter{State: "odd"})
	a.code(err, posthaste.CodeInvalid, "state")
	_, err = a.Messages(a.ctx, posthaste.MessageFilter{Limit: 1001})
	a.code(err, posthaste.CodeInvalid, "limit")
	_, err = a.DeadLetters(a.ctx, posthaste.DeadLetterFilter{Queue: "none"})
	a.code(err, posthaste.CodeNotFound, "queue")

	// The dead letters are dropped with their queue.
	a.check(a.DropQueue(a.ctx, "other", posthaste.DropOptions{}))
	same("after the drop", find(posthaste.MessageFilter{Reference: "r1", Limit: 1000}), pick(func(i int) bool { return i%10 == 1 })...)
	_, err = a.Message(a.ctx, rare[0])
	a.code(err, posthaste.CodeNotFound, "id")
	a.code(a.DropQueue(a.ctx, "other", posthaste.DropOptions{}), posthaste.CodeNotFound, "queue")
}

func TestQueuesByCounters(t *testing.T) {
	options := posthaste.QueueOptions{MaxAttempts: 7, BackoffBase: 1500 * time.Millisecond, BackoffMax: time.Minute, Timeout: 2 * time.Second, MaxPayload: 5000, Lanes: 2, Mode: posthaste.AtLeastOnce}
	a := newAdminTest(t, options)
	a.check(a.CreateQueue(a.ctx, "q", options)) // idempotent
	a.code(a.CreateQueue(a.ctx, "q", posthaste.QueueOptions{MaxAttempts: 8}), posthaste.CodeConflict, "name")
	a.code(a.CreateQueue(a.ctx, "Q", posthaste.QueueOptions{}), posthaste.CodeInvalid, "name")
	a.code(a.CreateQueue(a.ctx, "p", posthaste.QueueOptions{MaxAttempts: -1}), posthaste.CodeInvalid, "max_attempts")
	a.check(a.CreateQueue(a.ctx, "empty", posthaste.QueueOptions{}))

	a.send(make([]posthaste.Message, 10)...)
	a.send(posthaste.Message{Delay: time.Hour})
	var got []posthaste.RawDelivery
	for len(got) < 10 {
		got = append(got, a.claim(10)...)
	}
	a.settle(
		posthaste.Settlement{Delivery: got[0].ID, Outcome: posthaste.OutcomeDone},
		posthaste.Settlement{Delivery: got[1].ID, Outcome: posthaste.OutcomeDone, Receipt: json.RawMessage(`1`)},
		posthaste.Settlement{Delivery: got[2].ID, Outcome: posthaste.OutcomeRetried, Error: "x", RetryAfter: time.Hour},
		posthaste.Settlement{Delivery: got[3].ID, Outcome: posthaste.OutcomeDead, Error: "x"},
		posthaste.Settlement{Delivery: got[4].ID, Outcome: posthaste.OutcomeReleased})
	a.turn()
	infos, err := a.Queues(a.ctx, "q", "none")
	a.check(err)
	if len(infos) != 1 || infos[0].Name != "q" || !reflect.DeepEqual(infos[0].Options, options) || infos[0].CreatedAt.IsZero() || len(infos[0].Subscriptions) != 1 {
		t.Fatalf("queues %+v", infos)
	}
	s := infos[0].Subscriptions[0]
	// The scheduled, the retried and the released message are waiting.
	if s.Name != posthaste.DefaultSubscription || s.Depth != 3 || s.InFlight != 5 || s.Dead != 1 || s.Sent != 11 || s.Done != 2 || s.Retried != 1 || s.Lost != 0 ||
		s.OldestAge <= 0 || s.OldestAge > time.Hour || s.CountedAt.IsZero() {
		t.Errorf("counted %+v", s)
	}
	all, err := a.Queues(a.ctx)
	a.check(err)
	if len(all) != 2 || all[0].Name != "empty" || all[0].Subscriptions[0].OldestAge != 0 || all[0].Options.MaxAttempts != 20 {
		t.Errorf("queues %+v", all)
	}
}

// The role posthaste_admin can read everything that operators need.
func TestViewsAsAdmin(t *testing.T) {
	a := newAdminTest(t, posthaste.QueueOptions{})
	a.send(posthaste.Message{Reference: "r"})
	conn, err := a.pool.Acquire(a.ctx)
	a.check(err)
	defer conn.Release()
	_, err = conn.Exec(a.ctx, "set role posthaste_admin")
	a.check(err)
	defer func() {
		_, err := conn.Exec(context.WithoutCancel(a.ctx), "reset role")
		a.check(err)
	}()
	for sql, want := range map[string]string{
		"select state || ' ' || subscription || ' ' || jsonb_array_length(attempts) from posthaste.messages where queue = 'q' and reference = 'r'": "ready default 0",
		"select subscription || ' ' || (oldest_age > '0')::text || ' ' || max_attempts from posthaste.queues where queue = 'q'":                    "default true 20",
		"select name || ' ' || state from posthaste.workers":                                                                                       "host/1 alive",
		"select count(*)::text from posthaste.dead_letters":                                                                                        "0",
		"select state from posthaste.list_messages(reference => 'r')":                                                                              "ready",
		"select count(*)::text from posthaste.list_dead_letters(message_ids => '{1}')":                                                             "0",
		"select count(*)::text from posthaste.replay(filter => '{\"all\": true}')":                                                                 "0",
		"select count(*)::text from posthaste.discard(filter => '{\"all\": true}')":                                                                "0",
	} {
		var got string
		if err := conn.QueryRow(a.ctx, sql).Scan(&got); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", sql, got, err, want)
		}
	}
}

// Doorbell connections are counted for any application name of the pool.
func TestVitalsCountDoorbells(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	url := testpg.New(t)
	for i, name := range []string{"", "shop", strings.Repeat("x", 63)} {
		named := url
		if name != "" {
			named += "&application_name=" + name
		}
		e := openAt(t, named)
		bell, err := e.Doorbell(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer bell.Close()
		if vitals, err := e.Vitals(ctx); err != nil || vitals.Doorbells != i+1 {
			t.Errorf("with one more, of an application %q, the doorbells are %d, want %d; %v", name, vitals.Doorbells, i+1, err)
		}
	}
}
