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

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

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
	a.settle(posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.OutcomeReleased})
	a.expect(id, posthaste.StateReady)

	d = a.claim(10)[0]
	a.settle(posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.OutcomeRetried, Error: "boom", RetryAfter: time.Hour, Duration: 1500 * time.Millisecond,
		Receipt: json.RawMessage(`{"smtp":450}`)})
	s := a.expect(id, posthaste.StateRetrying, posthaste.OutcomeRetried)
	if at := s.Attempts[0]; at.Error != "boom" || at.DurationMS != 1500 || at.Worker != "host/1" || string(at.Receipt) != `{"smtp": 450}` {
		t.Errorf("told as %+v", at)
	}
	if wait := time.Until(s.DueAt); wait < 30*time.Minute || wait > 90*time.Minute {
		t.Errorf("due in %s", wait)
	}

	// Move the due time into the past.
	a.exec(`update posthaste.entries_other set due_at = clock_timestamp() where pos = (select max(pos) from posthaste.entries where message_id = $1)`, int64(id))
	if s := a.expect(id, posthaste.StateRetrying, posthaste.OutcomeRetried); !s.DueAt.IsZero() {
		t.Errorf("due at %s, though that is past", s.DueAt)
	}
	a.claim(10)
	a.expect(id, posthaste.StateRunning, posthaste.OutcomeRetried, "")

	// The worker is lost.
	a.exec(`update posthaste.registrations set lease = '-1000 years' where id = $1`, int64(a.worker))
	lost, err := a.Maintain(a.ctx, posthaste.UpkeepRescue)
	a.check(err)
	if lost.Rescued != 1 {
		t.Fatalf("%d deliveries lost", lost.Rescued)
	}
	a.expect(id, posthaste.StateRetrying, posthaste.OutcomeRetried, posthaste.OutcomeLost)
	workers, err := a.Workers(a.ctx)
	a.check(err)
	if len(workers) != 1 || workers[0].LostAt.IsZero() || workers[0].Name != "host/1" {
		t.Errorf("workers %+v", workers)
	}
	a.worker, err = a.Register(a.ctx, posthaste.WorkerInfo{Name: "host/2", Lease: time.Hour})
	a.check(err)

	d = a.claim(10)[0]
	a.settle(posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.OutcomeDone, Receipt: json.RawMessage(`{"id":"abc","none":null}`)})
	s = a.expect(id, posthaste.StateDone, posthaste.OutcomeRetried, posthaste.OutcomeLost, posthaste.OutcomeDone)
	if at := s.Attempts[2]; at.Worker != "host/2" || string(at.Receipt) != `{"id": "abc", "none": null}` {
		t.Errorf("told as %+v", at)
	}

	later := a.send(posthaste.Message{Delay: time.Hour})[0]
	if s := a.expect(later, posthaste.StateScheduled); time.Until(s.DueAt) < 30*time.Minute {
		t.Errorf("due at %s", s.DueAt)
	}
	plain := a.send(posthaste.Message{})[0]
	a.settle(posthaste.Settlement{Delivery: a.claim(10)[0].ID, Outcome: posthaste.OutcomeDone})
	if s := a.expect(plain, posthaste.StateDone, posthaste.OutcomeDone); s.Attempts[0].Worker != "host/2" || s.Attempts[0].EndedAt.Before(s.Attempts[0].ClaimedAt) {
		t.Errorf("told as %+v", s.Attempts[0])
	}
	bad := a.send(posthaste.Message{})[0]
	a.settle(posthaste.Settlement{Delivery: a.claim(10)[0].ID, Outcome: posthaste.OutcomeDead, Error: "no such user"})
	if s := a.expect(bad, posthaste.StateDead, posthaste.OutcomeDead); s.Attempts[0].Error != "no such user" {
		t.Errorf("told as %+v", s.Attempts[0])
	}
	_, err = a.Message(a.ctx, 1<<40)
	a.code(err, posthaste.CodeNotFound, "id")
	// The position of a retry is not the id of a message.
	var retry int64
	a.check(a.pool.QueryRow(a.ctx, `select min(pos) from posthaste.entries where message_id = $1`, int64(id)).Scan(&retry))
	_, err = a.Message(a.ctx, posthaste.MessageID(retry))
	a.code(err, posthaste.CodeNotFound, "id")
}

// Deliveries that SQL received are settled one by one.
func TestTR3_ReceivedBySQL(t *testing.T) {
	a := newAdminTest(t, posthaste.QueueOptions{})
	ids := a.send(make([]posthaste.Message, 3)...)
	reply, err := a.Receive(a.ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "q"}, Max: 10, Lease: time.Hour})
	got := reply.Deliveries
	a.check(err)
	a.exec(`select posthaste.ack(array[$1::bigint])`, int64(got[1].ID))
	a.exec(`select posthaste.fail($1, 'no')`, int64(got[2].ID))
	a.expect(ids[0], posthaste.StateRunning, "")
	if s := a.expect(ids[1], posthaste.StateDone, posthaste.OutcomeDone); s.Attempts[0].Worker != "" {
		t.Errorf("worker %q", s.Attempts[0].Worker)
	}
	a.expect(ids[2], posthaste.StateRetrying, posthaste.OutcomeRetried)
}

// A message's story contains its own receipts only, however transactions, claims and both tracks
// interleave.
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
			reply, err := a.Claim(a.ctx, posthaste.ClaimRequest{Worker: a.worker, Number: a.number, QueueRef: posthaste.QueueRef{Queue: "q"}, Max: 1 + random.IntN(8), AllowAlone: true})
			a.check(err)
			for _, d := range reply.Deliveries {
				receipt := fmt.Sprintf(`%d`, d.ID)
				switch random.IntN(8) {
				case 0:
					held++
				case 1, 2:
					a.settle(posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.OutcomeRetried, Error: "again", RetryAfter: time.Microsecond, Receipt: json.RawMessage(receipt)})
					want[d.MessageID] = append(want[d.MessageID], receipt)
				default:
					a.settle(posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.OutcomeDone, Receipt: json.RawMessage(receipt)})
					want[d.MessageID] = append(want[d.MessageID], receipt)
				}
			}
		}
	}
	for len(open) > 0 {
		commit()
	}
	a.exec(`select pg_sleep(0.03)`) // let all retries fall due before the lists are read
	listed := map[posthaste.MessageID]posthaste.MessageState{}
	for before := posthaste.MessageID(0); ; {
		page, err := a.Messages(a.ctx, posthaste.MessageFilter{Queue: "q", Before: before, Limit: 100})
		a.check(err)
		if len(page.Items) == 0 {
			break
		}
		for _, m := range page.Items {
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

// If a row of a claim's range is gone, the places of its messages cannot be determined.
func TestTR3_PartlyReclaimedSliceIsUnknown(t *testing.T) {
	a := newAdminTest(t, posthaste.QueueOptions{})
	ids := a.send(make([]posthaste.Message, 3)...)
	for i, d := range a.claim(10) {
		a.settle(posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.OutcomeDone, Receipt: json.RawMessage(fmt.Sprint(i))})
	}
	a.expect(ids[2], posthaste.StateDone, posthaste.OutcomeDone)
	a.exec(`delete from posthaste.entries_plain where pos = $1`, int64(ids[0]))
	for _, id := range ids {
		_, err := a.Message(a.ctx, id)
		a.code(err, posthaste.CodeNotFound, "id")
	}
}

func TestTR3_ReclaimedClaimIsUnknown(t *testing.T) {
	a := newAdminTest(t, posthaste.QueueOptions{})
	var ids []posthaste.MessageID
	for i := range 3 {
		ids = append(ids, a.send(posthaste.Message{})...)
		a.settle(posthaste.Settlement{Delivery: a.claim(10)[0].ID, Outcome: posthaste.OutcomeDone, Receipt: json.RawMessage(fmt.Sprint(i))})
	}
	a.exec(`delete from posthaste.claims where seq = 1`)
	_, err := a.Message(a.ctx, ids[0])
	a.code(err, posthaste.CodeNotFound, "id")
	// The search ends at the next claim, which must not match.
	var fate string
	a.check(a.pool.QueryRow(a.ctx, `select (posthaste.find_claim(posthaste.reader_key(e.queue_id, 0, 0, 0), e.xid, e.pos, null, posthaste.live_slots())).fate
		from posthaste.entries e where pos = $1`, int64(ids[0])).Scan(&fate))
	if fate != "reclaimed" {
		t.Errorf("found %s", fate)
	}
	for i, id := range ids[1:] {
		if s := a.expect(id, posthaste.StateDone, posthaste.OutcomeDone); string(s.Attempts[0].Receipt) != fmt.Sprint(i+1) {
			t.Errorf("message %d got receipt %s", id, s.Attempts[0].Receipt)
		}
	}
}

// turn runs upkeep until all slots that can be reclaimed are.
func (a *adminTest) turn() {
	a.Helper()
	for range 100 {
		reply, err := a.Maintain(a.ctx, posthaste.UpkeepSpace)
		a.check(err)
		if !reply.More {
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
		posthaste.Settlement{Delivery: deliveries[0].ID, Outcome: posthaste.OutcomeDone},
		posthaste.Settlement{Delivery: deliveries[1].ID, Outcome: posthaste.OutcomeDead, Error: "bad"},
		posthaste.Settlement{Delivery: deliveries[2].ID, Outcome: posthaste.OutcomeRetried, Error: "later", RetryAfter: 10 * time.Hour},
		posthaste.Settlement{Delivery: deliveries[3].ID, Outcome: posthaste.OutcomeDone})
	// Transactions in other databases may block the slot.
	testrun.Until(a.T, 2*time.Minute, "the slot is reclaimed", func() bool {
		var n int
		a.check(a.pool.QueryRow(a.ctx, `select count(*) from posthaste.entries where pos = any ($1)`, []int64{int64(ids[0]), int64(ids[2])}).Scan(&n))
		if n == 0 {
			return true
		}
		// Upkeep moves scheduled messages only if no other slot is free.
		a.exec(`select posthaste.carry_slot(0)`)
		a.send(make([]posthaste.Message, 20)...)
		for range 2 {
			for _, d := range a.claimOnce() {
				a.settle(posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.OutcomeDone})
			}
		}
		a.turn()
		return false
	})
	for _, i := range []int{0, 3} {
		_, err := a.Message(a.ctx, ids[i])
		a.code(err, posthaste.CodeNotFound, "id")
	}
	a.expect(ids[1], posthaste.StateDead, posthaste.OutcomeDead)
	a.expect(ids[2], posthaste.StateRetrying, posthaste.OutcomeRetried)
	list, err := a.Messages(a.ctx, posthaste.MessageFilter{Queue: "q", State: posthaste.StateRetrying})
	a.check(err)
	if len(list.Items) != 1 || list.Items[0].ID != ids[2] {
		t.Errorf("retrying are %+v", list.Items)
	}
	// All pages together contain each message once, newest first.
	seen := posthaste.MessageID(1 << 60)
	for before := posthaste.MessageID(0); ; {
		page, err := a.Messages(a.ctx, posthaste.MessageFilter{Before: before, Limit: 7})
		a.check(err)
		if len(page.Items) == 0 {
			break
		}
		for _, m := range page.Items {
			if m.ID >= seen {
				t.Fatalf("message %d after %d", m.ID, seen)
			}
			seen = m.ID
		}
		before = seen
	}
	if seen != ids[1] { // the dead letter, though its slot is gone
		t.Errorf("the last one listed is %d, want %d", seen, ids[1])
	}
}

func (a *adminTest) claimOnce() []posthaste.RawDelivery {
	a.Helper()
	a.number++
	reply, err := a.Claim(a.ctx, posthaste.ClaimRequest{Worker: a.worker, Number: a.number, QueueRef: posthaste.QueueRef{Queue: "q"}, Max: 50})
	a.check(err)
	return reply.Deliveries
}
