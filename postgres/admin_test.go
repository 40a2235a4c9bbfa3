//go:build unix

package postgres_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
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
	a.check(a.QueueCreate(a.ctx, "q", options))
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
	ids, err := a.Send(a.ctx, messages...)
	a.check(err)
	return ids
}

// claim claims until something comes: a retry may be due in a moment.
func (a *adminTest) claim(most int) []posthaste.RawDelivery {
	a.Helper()
	for {
		a.number++
		reply, err := a.Claim(a.ctx, posthaste.ClaimRequest{Worker: a.worker, Number: a.number, QueueRef: posthaste.QueueRef{Queue: "q"}, Max: most, Idle: true})
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

// expect asserts a message's state and the outcomes of its attempts in order,
// "" for one that runs.
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

func TestTR3_StoryThroughEveryState(t *testing.T) {
	a := newAdminTest(t, posthaste.QueueOptions{MaxAttempts: 5})
	id := a.send(posthaste.Message{Payload: map[string]int{"a": 1}, Key: "k", Kind: "made", Reference: "r", Terms: []string{"x", "y"},
		Headers: map[string]string{"h": "v"}})[0]
	a.expect(id, posthaste.StateReady)
	m, err := a.Message(a.ctx, id)
	a.check(err)
	if m.Queue != "q" || m.Key != "k" || m.Kind != "made" || m.Reference != "r" || !slices.Equal(m.Terms, []string{"x", "y"}) || m.Headers["h"] != "v" ||
		m.ContentType != posthaste.ContentTypeJSON || string(m.Payload) != `{"a":1}` || time.Since(m.CreatedAt).Abs() > time.Hour {
		t.Fatalf("told as %+v", m)
	}

	d := a.claim(10)[0]
	if s := a.expect(id, posthaste.StateRunning, ""); s.Attempts[0].Worker != "host/1" {
		t.Errorf("running on %q", s.Attempts[0].Worker)
	}
	a.settle(posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.Released})
	a.expect(id, posthaste.StateReady)

	d = a.claim(10)[0]
	a.settle(posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.Retried, Error: "boom", RetryAfter: time.Hour, Duration: 1500 * time.Millisecond,
		Receipt: json.RawMessage(`{"smtp":450}`)})
	s := a.expect(id, posthaste.StateRetrying, posthaste.Retried)
	if at := s.Attempts[0]; at.Error != "boom" || at.DurationMS != 1500 || at.Worker != "host/1" || string(at.Receipt) != `{"smtp": 450}` {
		t.Errorf("told as %+v", at)
	}
	if wait := time.Until(s.DueAt); wait < 30*time.Minute || wait > 90*time.Minute {
		t.Errorf("due in %s", wait)
	}

	// Brought forward, as time would: it falls due.
	a.exec(`update posthaste.entries set due_at = clock_timestamp() where pos = (select max(pos) from posthaste.entries where message_id = $1)`, int64(id))
	if s := a.expect(id, posthaste.StateRetrying, posthaste.Retried); !s.DueAt.IsZero() {
		t.Errorf("due at %s, though that is past", s.DueAt)
	}
	a.claim(10)
	a.expect(id, posthaste.StateRunning, posthaste.Retried, "")

	// Its worker dies.
	a.exec(`update posthaste.registrations set lease = '-1000 years' where id = $1`, int64(a.worker))
	lost, err := a.Rescue(a.ctx)
	a.check(err)
	if lost != 1 {
		t.Fatalf("%d deliveries lost", lost)
	}
	a.expect(id, posthaste.StateRetrying, posthaste.Retried, posthaste.Lost)
	workers, err := a.Workers(a.ctx)
	a.check(err)
	if len(workers) != 1 || workers[0].LostAt.IsZero() || workers[0].Name != "host/1" {
		t.Errorf("workers %+v", workers)
	}
	a.worker, err = a.Register(a.ctx, posthaste.WorkerInfo{Name: "host/2", Lease: time.Hour})
	a.check(err)

	d = a.claim(10)[0]
	a.settle(posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.Done, Receipt: json.RawMessage(`{"id":"abc","none":null}`)})
	s = a.expect(id, posthaste.StateDone, posthaste.Retried, posthaste.Lost, posthaste.Done)
	if at := s.Attempts[2]; at.Worker != "host/2" || string(at.Receipt) != `{"id": "abc", "none": null}` {
		t.Errorf("told as %+v", at)
	}

	later := a.send(posthaste.Message{Delay: time.Hour})[0]
	if s := a.expect(later, posthaste.StateScheduled); time.Until(s.DueAt) < 30*time.Minute {
		t.Errorf("due at %s", s.DueAt)
	}
	plain := a.send(posthaste.Message{})[0]
	a.settle(posthaste.Settlement{Delivery: a.claim(10)[0].ID, Outcome: posthaste.Done})
	if s := a.expect(plain, posthaste.StateDone, posthaste.Done); s.Attempts[0].Worker != "host/2" || s.Attempts[0].EndedAt.Before(s.Attempts[0].ClaimedAt) {
		t.Errorf("told as %+v", s.Attempts[0])
	}
	bad := a.send(posthaste.Message{})[0]
	a.settle(posthaste.Settlement{Delivery: a.claim(10)[0].ID, Outcome: posthaste.Dead, Error: "no such user"})
	if s := a.expect(bad, posthaste.StateDead, posthaste.Dead); s.Attempts[0].Error != "no such user" {
		t.Errorf("told as %+v", s.Attempts[0])
	}
	_, err = a.Message(a.ctx, 1<<40)
	a.code(err, posthaste.NotFound, "id")
	// A retry's own position is no message.
	var retry int64
	a.check(a.pool.QueryRow(a.ctx, `select min(pos) from posthaste.entries where message_id = $1`, int64(id)).Scan(&retry))
	_, err = a.Message(a.ctx, posthaste.MessageID(retry))
	a.code(err, posthaste.NotFound, "id")
}

// Received by SQL: the deliveries of one claim are settled one by one.
func TestTR3_ReceivedBySQL(t *testing.T) {
	a := newAdminTest(t, posthaste.QueueOptions{})
	ids := a.send(make([]posthaste.Message, 3)...)
	got, err := a.Receive(a.ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "q"}, Max: 10, Lease: time.Hour})
	a.check(err)
	a.exec(`select posthaste.ack(array[$1::bigint])`, int64(got[1].ID))
	a.exec(`select posthaste.fail($1, 'no')`, int64(got[2].ID))
	a.expect(ids[0], posthaste.StateRunning, "")
	if s := a.expect(ids[1], posthaste.StateDone, posthaste.Done); s.Attempts[0].Worker != "" {
		t.Errorf("worker %q", s.Attempts[0].Worker)
	}
	a.expect(ids[2], posthaste.StateRetrying, posthaste.Retried)
}

// Every message's story names the message itself, however transactions, claims
// and both tracks interleave: its place is never a neighbour's.
func TestTR3_PlacesAreNeverANeighbours(t *testing.T) {
	a := newAdminTest(t, posthaste.QueueOptions{MaxAttempts: 1000})
	random := rand.New(rand.NewPCG(1, 2))
	var open []pgx.Tx
	sent := map[posthaste.MessageID]bool{}
	commit := func() {
		i := random.IntN(len(open))
		a.check(open[i].Commit(a.ctx))
		open = slices.Delete(open, i, i+1)
	}
	want := map[posthaste.MessageID][]string{} // receipts by message
	held := 0
	for range 300 {
		switch {
		case random.IntN(3) > 0:
			if len(open) < 4 && random.IntN(2) == 0 {
				tx, err := a.pool.Begin(a.ctx)
				a.check(err)
				open = append(open, tx)
			}
			var q interface {
				QueryRow(context.Context, string, ...any) pgx.Row
			} = a.pool
			if len(open) > 0 && random.IntN(2) == 0 {
				q = open[random.IntN(len(open))]
			}
			for range 1 + random.IntN(4) {
				var id int64
				delay := []string{"0", "0", "1 microsecond", "20 milliseconds"}[random.IntN(4)]
				a.check(q.QueryRow(a.ctx, `select posthaste.send('q', '1', jsonb_build_object('delay', $1::text))`, delay).Scan(&id))
				sent[posthaste.MessageID(id)] = true
			}
		case len(open) > 0 && random.IntN(2) == 0:
			commit()
		default:
			a.number++
			reply, err := a.Claim(a.ctx, posthaste.ClaimRequest{Worker: a.worker, Number: a.number, QueueRef: posthaste.QueueRef{Queue: "q"}, Max: 1 + random.IntN(8), Idle: true})
			a.check(err)
			for _, d := range reply.Deliveries {
				receipt := fmt.Sprintf(`%d`, d.ID)
				switch random.IntN(8) {
				case 0:
					held++
				case 1, 2:
					a.settle(posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.Retried, Error: "again", RetryAfter: time.Microsecond, Receipt: json.RawMessage(receipt)})
					want[d.MessageID] = append(want[d.MessageID], receipt)
				default:
					a.settle(posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.Done, Receipt: json.RawMessage(receipt)})
					want[d.MessageID] = append(want[d.MessageID], receipt)
				}
			}
		}
	}
	for len(open) > 0 {
		commit()
	}
	listed := map[posthaste.MessageID]posthaste.MessageState{}
	for before := posthaste.MessageID(0); ; {
		page, err := a.Messages(a.ctx, posthaste.MessageFilter{Queue: "q", Before: before, Limit: 100})
		a.check(err)
		if len(page) == 0 {
			break
		}
		for _, m := range page {
			if before != 0 && m.ID >= before {
				t.Fatalf("message %d after %d", m.ID, before)
			}
			listed[m.ID], before = m.Subscriptions[0], m.ID
		}
	}
	running := 0
	for id := range sent {
		m, err := a.Message(a.ctx, id)
		a.check(err)
		s := m.Subscriptions[0]
		var receipts []string
		for _, at := range s.Attempts {
			if at.Outcome != "" {
				receipts = append(receipts, string(at.Receipt))
			} else {
				running++
			}
		}
		if !slices.Equal(receipts, want[id]) {
			t.Errorf("message %d was told to have receipts %v, and has %v", id, receipts, want[id])
		}
		if l := listed[id]; l.State != s.State || len(l.Attempts) != len(s.Attempts) {
			t.Errorf("message %d is listed as %+v and told as %+v", id, l, s)
		}
	}
	if running != held || len(listed) != len(sent) || held == 0 || len(want) == 0 {
		t.Errorf("%d running of %d held, %d listed of %d sent, %d settled", running, held, len(listed), len(sent), len(want))
	}
}

// With a row of its slice gone, places can't be counted any more.
func TestTR3_PartlyReclaimedSliceIsUnknown(t *testing.T) {
	a := newAdminTest(t, posthaste.QueueOptions{})
	ids := a.send(make([]posthaste.Message, 3)...)
	for i, d := range a.claim(10) {
		a.settle(posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.Done, Receipt: json.RawMessage(fmt.Sprint(i))})
	}
	a.expect(ids[2], posthaste.StateDone, posthaste.Done)
	a.exec(`delete from posthaste.entries where pos = $1`, int64(ids[0]))
	for _, id := range ids {
		_, err := a.Message(a.ctx, id)
		a.code(err, posthaste.NotFound, "id")
	}
}

func TestTR3_ReclaimedClaimIsUnknown(t *testing.T) {
	a := newAdminTest(t, posthaste.QueueOptions{})
	var ids []posthaste.MessageID
	for i := range 3 {
		ids = append(ids, a.send(posthaste.Message{})...)
		a.settle(posthaste.Settlement{Delivery: a.claim(10)[0].ID, Outcome: posthaste.Done, Receipt: json.RawMessage(fmt.Sprint(i))})
	}
	a.exec(`delete from posthaste.claims where seq = 1`)
	_, err := a.Message(a.ctx, ids[0])
	a.code(err, posthaste.NotFound, "id")
	for i, id := range ids[1:] {
		if s := a.expect(id, posthaste.StateDone, posthaste.Done); string(s.Attempts[0].Receipt) != fmt.Sprint(i+1) {
			t.Errorf("message %d got receipt %s", id, s.Attempts[0].Receipt)
		}
	}
}

// turn does upkeep until every slot that can be reclaimed is.
func (a *adminTest) turn() {
	a.Helper()
	for range 100 {
		more, err := a.Maintain(a.ctx)
		a.check(err)
		if !more {
			return
		}
	}
	a.Fatal("maintenance never ends")
}

func TestTR3_AfterTheSlotIsReclaimed(t *testing.T) {
	a := newAdminTest(t, posthaste.QueueOptions{})
	a.exec(`update posthaste.settings set slot_rows = 20, spare_slots = 12`)
	ids := a.send(make([]posthaste.Message, 4)...)
	deliveries := a.claim(10)
	a.settle(
		posthaste.Settlement{Delivery: deliveries[0].ID, Outcome: posthaste.Done},
		posthaste.Settlement{Delivery: deliveries[1].ID, Outcome: posthaste.Dead, Error: "bad"},
		posthaste.Settlement{Delivery: deliveries[2].ID, Outcome: posthaste.Retried, Error: "later", RetryAfter: 10 * time.Hour},
		posthaste.Settlement{Delivery: deliveries[3].ID, Outcome: posthaste.Done})
	gone := func() bool {
		var n int
		a.check(a.pool.QueryRow(a.ctx, `select count(*) from posthaste.entries where pos = any ($1)`, []int64{int64(ids[0]), int64(ids[2])}).Scan(&n))
		return n == 0
	}
	for !gone() {
		a.check(a.ctx.Err())
		// Upkeep moves what is due later only when no other slot is free.
		a.exec(`select posthaste.carry_slot(0)`)
		a.send(make([]posthaste.Message, 20)...)
		for range 2 {
			for _, d := range a.claimOnce() {
				a.settle(posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.Done})
			}
		}
		a.turn()
	}
	for _, i := range []int{0, 3} {
		_, err := a.Message(a.ctx, ids[i])
		a.code(err, posthaste.NotFound, "id")
	}
	a.expect(ids[1], posthaste.StateDead, posthaste.Dead)
	a.expect(ids[2], posthaste.StateRetrying, posthaste.Retried)
	list, err := a.Messages(a.ctx, posthaste.MessageFilter{Queue: "q", State: posthaste.StateRetrying})
	a.check(err)
	if len(list) != 1 || list[0].ID != ids[2] {
		t.Errorf("retrying are %+v", list)
	}
	// All pages together hold each message once, newest first.
	seen := posthaste.MessageID(1 << 60)
	for before := posthaste.MessageID(0); ; {
		page, err := a.Messages(a.ctx, posthaste.MessageFilter{Before: before, Limit: 7})
		a.check(err)
		if len(page) == 0 {
			break
		}
		for _, m := range page {
			if m.ID >= seen {
				t.Fatalf("message %d after %d", m.ID, seen)
			}
			seen = m.ID
		}
		before = seen
	}
	if seen != ids[2] {
		t.Errorf("the last one listed is %d, want %d", seen, ids[2])
	}
}

func (a *adminTest) claimOnce() []posthaste.RawDelivery {
	a.Helper()
	a.number++
	reply, err := a.Claim(a.ctx, posthaste.ClaimRequest{Worker: a.worker, Number: a.number, QueueRef: posthaste.QueueRef{Queue: "q"}, Max: 50})
	a.check(err)
	return reply.Deliveries
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
			a.settle(posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.Retried, Error: "boom"})
		}
	}
	dead := func() []posthaste.DeadLetter {
		list, err := a.DeadLetters(a.ctx, posthaste.DeadLetterFilter{Queue: "q"})
		a.check(err)
		return list
	}
	die()
	a.expect(id, posthaste.StateDead, posthaste.Retried, posthaste.Dead)
	list := dead()
	if len(list) != 1 || list[0].ID != id || list[0].Error != "boom" || len(list[0].Attempts) != 2 || string(list[0].Payload) != `"p"` ||
		list[0].Subscription != posthaste.DefaultSubscription || !slices.Equal(list[0].Terms, []string{"ann@example.org"}) || list[0].DiedAt.IsZero() {
		t.Fatalf("dead letters %+v", list)
	}

	were, err := a.Replay(a.ctx, "ann", id, id, 1<<40)
	a.check(err)
	if !slices.Equal(were, []posthaste.MessageID{id}) || len(dead()) != 0 {
		t.Fatalf("replayed %v, left %v", were, dead())
	}
	a.expect(id, posthaste.StateRetrying, posthaste.Retried, posthaste.Dead)
	were, err = a.Replay(a.ctx, "ann", id)
	a.check(err)
	if len(were) != 0 {
		t.Fatalf("replayed twice: %v", were)
	}
	die() // all tries are open again, and the attempts go on counting
	a.expect(id, posthaste.StateDead, posthaste.Retried, posthaste.Dead, posthaste.Retried, posthaste.Dead)

	were, err = a.Discard(a.ctx, "", id, 1<<40)
	a.check(err)
	if !slices.Equal(were, []posthaste.MessageID{id}) || len(dead()) != 0 {
		t.Fatalf("discarded %v, left %v", were, dead())
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
	_, err = a.Replay(a.ctx, "", many...)
	a.code(err, posthaste.Invalid, "message_ids")
	_, err = a.Discard(a.ctx, "", many...)
	a.code(err, posthaste.Invalid, "message_ids")
}

func TestDS5_ReplayAtTheSameTime(t *testing.T) {
	a := newAdminTest(t, posthaste.QueueOptions{MaxAttempts: 1})
	ids := a.send(make([]posthaste.Message, 50)...)
	for _, d := range a.claim(100) {
		a.settle(posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.Retried, Error: "x"})
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
			were, err := a.Replay(a.ctx, "", order...)
			answers <- answer{were, err}
		}()
	}
	var all []posthaste.MessageID
	for range 4 {
		got := <-answers
		if got.err != nil {
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
	a.check(a.QueueCreate(a.ctx, "other", posthaste.QueueOptions{Lanes: 4}))
	rare := a.send(posthaste.Message{Queue: "other", Reference: "r1", Terms: []string{"bob@example.org"}}, posthaste.Message{Queue: "other", Delay: time.Hour})
	var many []posthaste.Message
	for i := range 300 {
		many = append(many, posthaste.Message{Reference: fmt.Sprintf("r%d", i%10), Terms: []string{fmt.Sprintf("t%d", i%3), "all"}})
	}
	ids := a.send(many...)
	for i, d := range a.claim(10) {
		outcome := []posthaste.Outcome{posthaste.Done, posthaste.Retried}[i%2]
		a.settle(posthaste.Settlement{Delivery: d.ID, Outcome: outcome, Error: "x", RetryAfter: time.Hour})
	}
	find := func(f posthaste.MessageFilter) []posthaste.MessageID {
		t.Helper()
		list, err := a.Messages(a.ctx, f)
		a.check(err)
		var found []posthaste.MessageID
		for _, m := range list {
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
	a.code(err, posthaste.NotFound, "queue")
	_, err = a.Messages(a.ctx, posthaste.MessageFilter{State: "odd"})
	a.code(err, posthaste.Invalid, "state")
	_, err = a.Messages(a.ctx, posthaste.MessageFilter{Limit: 1001})
	a.code(err, posthaste.Invalid, "limit")
	_, err = a.DeadLetters(a.ctx, posthaste.DeadLetterFilter{Queue: "none"})
	a.code(err, posthaste.NotFound, "queue")

	// Dropped with its queue.
	a.check(a.QueueDrop(a.ctx, "other"))
	same("after the drop", find(posthaste.MessageFilter{Reference: "r1", Limit: 1000}), pick(func(i int) bool { return i%10 == 1 })...)
	_, err = a.Message(a.ctx, rare[0])
	a.code(err, posthaste.NotFound, "id")
	a.code(a.QueueDrop(a.ctx, "other"), posthaste.NotFound, "queue")
}

func TestQueuesByCounters(t *testing.T) {
	options := posthaste.QueueOptions{MaxAttempts: 7, BackoffBase: 1500 * time.Millisecond, BackoffMax: time.Minute, Timeout: 2 * time.Second, MaxPayload: 5000, Lanes: 2}
	a := newAdminTest(t, options)
	a.check(a.QueueCreate(a.ctx, "q", options)) // the same again is no error
	a.code(a.QueueCreate(a.ctx, "q", posthaste.QueueOptions{}), posthaste.Conflict, "name")
	a.code(a.QueueCreate(a.ctx, "Q", posthaste.QueueOptions{}), posthaste.Invalid, "name")
	a.code(a.QueueCreate(a.ctx, "p", posthaste.QueueOptions{MaxAttempts: -1}), posthaste.Invalid, "max_attempts")
	a.check(a.QueueCreate(a.ctx, "empty", posthaste.QueueOptions{}))

	a.send(make([]posthaste.Message, 10)...)
	a.send(posthaste.Message{Delay: time.Hour})
	var got []posthaste.RawDelivery
	for len(got) < 10 {
		got = append(got, a.claim(10)...)
	}
	a.settle(
		posthaste.Settlement{Delivery: got[0].ID, Outcome: posthaste.Done},
		posthaste.Settlement{Delivery: got[1].ID, Outcome: posthaste.Done, Receipt: json.RawMessage(`1`)},
		posthaste.Settlement{Delivery: got[2].ID, Outcome: posthaste.Retried, Error: "x", RetryAfter: time.Hour},
		posthaste.Settlement{Delivery: got[3].ID, Outcome: posthaste.Dead, Error: "x"},
		posthaste.Settlement{Delivery: got[4].ID, Outcome: posthaste.Released})
	a.turn()
	infos, err := a.Queues(a.ctx, "q", "none")
	a.check(err)
	if len(infos) != 1 || infos[0].Name != "q" || infos[0].Options != options || infos[0].CreatedAt.IsZero() || len(infos[0].Subscriptions) != 1 {
		t.Fatalf("queues %+v", infos)
	}
	s := infos[0].Subscriptions[0]
	// Waiting are the scheduled one, the retry and the released one.
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
