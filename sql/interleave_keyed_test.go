package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// The random interleavings of a keyed queue: senders of every shape, two
// subscriptions, one of which has a filter, receivers, workers that die, rescue,
// cancelling and a turning ring. Everybody writes down what they were told; nothing
// is read from the ledger.
type keyedRun struct {
	crew
	options string
	ordered bool
	cap     int // of unsettled messages of a key, 0 for no bound
	all     int // of unsettled messages of a subscription, 0 for no bound
	rate    float64
	burst   float64 // handed out at once at most
	pauses  bool    // keys are paused and resumed
	workers int
	keys    int

	clock    atomic.Int64 // orders what happens
	left     atomic.Int64 // committed and not ended, as of lately
	messages map[keyedID]*keyedMessage
	byKey    map[keyedKey][]*keyedMessage
	running  map[keyedKey]int // handed out and not given back
	sent     []int64          // and committed
	out      map[string]int   // handed out and not given back, by subscription
	handed   map[string]int   // handed out since then
	since    time.Time
}

type keyedID struct {
	subscription string
	message      int64
}

type keyedKey struct{ subscription, key string }

// keyedSubscriptions and the kind that each wants, "" for all.
var keyedSubscriptions = map[string]string{"default": "", "xs": "x"}

// keyedMessage is a message as one subscription has it.
type keyedMessage struct {
	id         int64
	key        keyedKey
	begun      int64 // before its send
	committed  int64 // after its commit, 0 if not known yet
	done       bool
	cancelled  bool
	cancelling bool // somebody tries, so it may be cancelled already
	rolledBack bool
	story      []string // what happened to it, for people
}

func (x *keyedRun) run(duration, still time.Duration) {
	x.messages, x.byKey, x.running = map[keyedID]*keyedMessage{}, map[keyedKey][]*keyedMessage{}, map[keyedKey]int{}
	x.out, x.handed, x.since = map[string]int{}, map[string]int{}, time.Now()
	admin := x.gather(300, 15)
	x.must(admin, `select posthaste.create_queue('q', $1)`, x.options)
	x.must(admin, `select posthaste.subscribe('q', 'xs', '{"filter": {"kind": "x"}}')`)
	x.start(&x.writers, 4, x.sender)
	for name := range keyedSubscriptions {
		if x.workers == 0 {
			x.start(&x.others, 2, func(c *pgx.Conn, r *rand.Rand) { x.receiver(c, r, name) })
		}
		x.start(&x.others, x.workers, func(c *pgx.Conn, r *rand.Rand) { x.worker(c, r, name) })
	}
	x.start(&x.others, 1, x.canceller)
	if x.pauses {
		x.start(&x.writers, 1, x.pauser)
	}
	x.start(&x.others, 1, func(c *pgx.Conn, r *rand.Rand) {
		for n := 0; x.ctx.Err() == nil; n++ {
			x.exec(c, "select posthaste.maintain()")
			time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
			if n%10 == 0 {
				_, left := x.ended()
				x.left.Store(int64(left))
			}
		}
	})
	x.sendFor(duration, func() int {
		x.mu.Lock()
		defer x.mu.Unlock()
		return len(x.messages)
	})
	x.finish(still, func() (int, bool) { done, left := x.ended(); return done, left == 0 })
	x.check(admin)
}

func (x *keyedRun) ended() (done, left int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, m := range x.messages {
		switch {
		case m.done, m.cancelled:
			done++
		case m.committed != 0:
			left++
		}
	}
	return done, left
}

func (x *keyedRun) check(admin *pgx.Conn) {
	n, left := x.ended()
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, m := range x.messages {
		if m.committed != 0 && !m.done && !m.cancelled && len(x.faults) < 5 {
			x.found("lost: message %d of key %s never ended", m.id, m.key)
		}
	}
	x.t.Logf("seed %d: %d done, %d left, faults: %d", x.seed, n, left, len(x.faults))
	if len(x.faults) > 0 {
		return
	}
	// What was cancelled last leaves its key to the next claim.
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(10 * time.Millisecond) {
		var blocked bool
		if err := admin.QueryRow(context.Background(), `select exists (select from posthaste.keys where blocked)`).Scan(&blocked); err != nil || !blocked {
			break
		}
		for name := range keyedSubscriptions {
			x.exec(admin, `select from posthaste.receive('q', 10, '1 hour', jsonb_build_object('subscription', $1::text))`, name)
		}
	}
	for what, sql := range map[string]string{
		"parked": `select count(*) from posthaste.parked`,
		"open":   `select count(*) from posthaste.keys where blocked`,
	} {
		var n int
		if err := admin.QueryRow(context.Background(), sql).Scan(&n); err != nil || n != 0 {
			x.found("%d are %s at the end (%v)", n, what, err)
		}
	}
}

// mostLeft is at how many messages that wait senders pause: a long run is to meet
// all that happens at once, and not to end with hours of what is left.
const mostLeft = 2000

// wanted is a message as each subscription that wants it has it.
func (x *keyedRun) wanted(id int64, key, kind string, begun int64) (out []*keyedMessage) {
	for name, wanted := range keyedSubscriptions {
		if wanted == "" || wanted == kind {
			out = append(out, &keyedMessage{id: id, key: keyedKey{name, key}, begun: begun})
		}
	}
	return out
}

func (x *keyedRun) sender(conn *pgx.Conn, r *rand.Rand) {
	for x.sending() {
		if x.left.Load() > mostLeft {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		level := ""
		if r.IntN(3) == 0 {
			level = " isolation level repeatable read"
		}
		x.exec(conn, "begin"+level)
		if r.IntN(2) == 0 {
			x.exec(conn, "select pg_current_xact_id()") // early
		}
		var sent []*keyedMessage // one for each subscription that wants it
		var ids []int64
		for n := 1 + r.IntN(4); n > 0; n-- {
			if r.IntN(4) == 0 {
				time.Sleep(time.Duration(r.IntN(30)) * time.Millisecond)
			}
			key, kind, begun := fmt.Sprint("k", r.IntN(x.keys)), []string{"x", "y"}[r.IntN(2)], x.clock.Add(1)
			var told []int64
			var err error
			if r.IntN(2) == 0 { // by COPY, of one key or several
				keys := []string{key}
				for r.IntN(2) == 0 {
					keys = append(keys, fmt.Sprint("k", r.IntN(x.keys)))
				}
				told, _, err = copyKeyed(context.Background(), conn, kind, keys...)
				for i := range told {
					sent = append(sent, x.wanted(told[i], keys[i], kind, begun)...)
				}
			} else {
				told = []int64{0}
				err = conn.QueryRow(context.Background(), `select posthaste.send('q', '1', jsonb_build_object('key', $1::text, 'kind', $2::text))`, key, kind).Scan(&told[0])
				sent = append(sent, x.wanted(told[0], key, kind, begun)...)
			}
			if err != nil {
				x.fault("error: send: %v", err)
				break
			}
			ids = append(ids, told...)
		}
		commit := r.IntN(5) != 0
		x.mu.Lock()
		for _, m := range sent {
			m.rolledBack = !commit
			x.messages[keyedID{m.key.subscription, m.id}] = m
			x.byKey[m.key] = append(x.byKey[m.key], m)
		}
		x.mu.Unlock()
		if !commit {
			x.exec(conn, "rollback")
			continue
		}
		if x.exec(conn, "commit") {
			x.mu.Lock()
			at := x.clock.Add(1)
			for _, m := range sent {
				m.committed = at
			}
			x.sent = append(x.sent, ids...)
			x.mu.Unlock()
		}
	}
}

type keyedDelivery struct {
	keyedID
	delivery int64
	attempt  int
	m        *keyedMessage
}

// canceller takes back messages that were sent lately.
func (x *keyedRun) canceller(conn *pgx.Conn, r *rand.Rand) {
	for x.ctx.Err() == nil {
		time.Sleep(time.Duration(5+r.IntN(30)) * time.Millisecond)
		x.mu.Lock()
		if len(x.sent) == 0 {
			x.mu.Unlock()
			continue
		}
		id := x.sent[len(x.sent)-1-r.IntN(min(len(x.sent), 30))]
		x.cancelling(id, true)
		x.mu.Unlock()
		rows, err := conn.Query(context.Background(), `select subscription from posthaste.cancel($1) where cancelled`, id)
		if err != nil {
			x.unexpected("cancel", err)
			return
		}
		names, err := pgx.CollectRows(rows, pgx.RowTo[string])
		var pg *pgconn.PgError
		if err != nil && !(errors.As(err, &pg) && pg.Code == "PH404") { // settled, and reclaimed
			x.unexpected("cancel", err)
		}
		x.mu.Lock()
		for _, name := range names {
			if m := x.messages[keyedID{name, id}]; m == nil {
				x.found("message %d was cancelled for subscription %s, which it is not for", id, name)
			} else {
				m.cancelled = true
				if m.done {
					x.found("message %d was cancelled for subscription %s after it was done", id, name)
				}
			}
		}
		x.cancelling(id, false)
		x.mu.Unlock()
	}
}

// cancelling needs x.mu.
func (x *keyedRun) cancelling(id int64, now bool) {
	for name := range keyedSubscriptions {
		if m := x.messages[keyedID{name, id}]; m != nil {
			m.cancelling = now
		}
	}
}

// begins notes that a message was handed out and would be handled now.
func (x *keyedRun) begins(d *keyedDelivery) {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.messages[d.keyedID]
	d.m = m
	if m == nil || m.rolledBack {
		x.found("message %d was handed out to %s, and was never committed or is not for it", d.message, d.subscription)
		return
	}
	if m.done || m.cancelled {
		x.found("twice: message %d was handed out after it was done or cancelled", d.message)
	}
	x.running[m.key]++
	x.out[d.subscription]++
	if x.all > 0 && x.out[d.subscription] > x.all {
		x.found("%d are out, at most %d may be", x.out[d.subscription], x.all)
	}
	x.handed[d.subscription]++
	if most := x.rate*time.Since(x.since).Seconds() + x.burst; x.rate > 0 && float64(x.handed[d.subscription]) > most {
		x.found("%d were handed out, at most %.0f may be by now", x.handed[d.subscription], most)
	}
	m.story = append(m.story, fmt.Sprintf("%d: handed out as %d", x.clock.Add(1), d.delivery))
	if x.cap > 0 && x.running[m.key] > x.cap {
		x.found("key %s: %d of its messages are out, at most %d may be", m.key, x.running[m.key], x.cap)
	}
	if !x.ordered {
		return
	}
	for _, o := range x.byKey[m.key] {
		if o.committed != 0 && o.committed < m.begun && !o.done && !o.cancelled && !o.cancelling {
			x.found("order: message %d of key %s came before %d, which was committed before it was sent: %v, %v", m.id, m.key, o.id, m.story, o.story)
		}
	}
}

func (x *keyedRun) gives(d *keyedDelivery) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if d.m != nil {
		x.running[d.m.key]--
		x.out[d.subscription]--
	}
}

// pauser pauses keys for a while, until nothing more is sent.
func (x *keyedRun) pauser(conn *pgx.Conn, r *rand.Rand) {
	for {
		key := fmt.Sprint("k", r.IntN(x.keys))
		x.exec(conn, `select posthaste.pause_key('q', $1)`, key)
		time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
		x.exec(conn, `select posthaste.resume_key('q', $1)`, key)
		select {
		case <-x.stopSend:
			return
		case <-time.After(time.Duration(r.IntN(100)) * time.Millisecond):
		}
	}
}

// drawnLimits is a run whose queue has options and limits by chance.
func drawnLimits(seed uint64, workers int) *keyedRun {
	r := rand.New(rand.NewPCG(seed, uint64(workers)))
	x := &keyedRun{keys: 6, workers: workers}
	options := []string{`"max_attempts": 1000`}
	kind := r.IntN(3)
	switch kind {
	case 0:
		options = append(options, fmt.Sprintf(`"ordered": true, "lanes": %d`, 1+r.IntN(3)))
		x.ordered = true
	case 1:
		options = append(options, `"fair": true`)
	}
	x.pauses = kind < 2
	if r.IntN(2) == 0 {
		x.all = 2 + r.IntN(8)
		options = append(options, fmt.Sprintf(`"concurrency": %d`, x.all))
	}
	if x.all == 0 || r.IntN(2) == 0 {
		x.rate, x.burst = float64(500+r.IntN(1500)), float64(20+r.IntN(80))
		options = append(options, fmt.Sprintf(`"rate_limit": {"limit": %.0f, "burst": %.0f}`, x.rate, x.burst))
	}
	if kind == 1 && r.IntN(2) == 0 {
		x.cap = 1 + r.IntN(2)
		options = append(options, fmt.Sprintf(`"key_concurrency": %d`, x.cap))
	}
	if kind < 2 && r.IntN(2) == 0 {
		options = append(options, fmt.Sprintf(`"key_rate_limit": {"limit": %d, "burst": 30}`, 200+r.IntN(400)))
	}
	x.options = "{" + strings.Join(options, ", ") + "}"
	return x
}

// Limits drawn by chance hold, and at the end nothing waits for ever.
func TestInterleavingLimits(t *testing.T) {
	for _, workers := range []int{0, 3} {
		t.Run(fmt.Sprint(workers, " workers"), func(t *testing.T) {
			t.Parallel()
			url := testpg.New(t)
			n := seed(t)
			x := drawnLimits(n, workers)
			x.t, x.url, x.seed = t, url, n
			t.Log(x.options)
			x.run(seconds(t, 3), patience)
			for _, f := range x.faults {
				t.Error(f)
			}
			if len(x.messages) < enough {
				t.Errorf("only %d messages were sent", len(x.messages))
			}
		})
	}
}

func (x *keyedRun) done(d *keyedDelivery, done bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if d.m != nil {
		d.m.done = done
	}
}

// tells keeps what became of a delivery.
func (x *keyedRun) tells(d *keyedDelivery, what string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if d.m != nil {
		d.m.story = append(d.m.story, fmt.Sprintf("%d: %s", x.clock.Add(1), what))
	}
}

func (x *keyedRun) settled(conn *pgx.Conn, what, sql string, delivery int64) bool {
	var settled bool
	if err := conn.QueryRow(context.Background(), sql, delivery).Scan(&settled); err != nil {
		if x.ctx.Err() == nil {
			x.fault("error: %s: %v", what, err)
		}
		return false
	}
	return settled
}

func (x *keyedRun) receiver(conn *pgx.Conn, r *rand.Rand, subscription string) {
	for x.ctx.Err() == nil {
		// Abandoned ones are given back by the test only when the lease is surely over.
		lease := "1 hour"
		abandon := r.IntN(10) == 0
		if abandon {
			lease = "1 millisecond"
		}
		rows, err := conn.Query(context.Background(), `select delivery_id, message_id, attempt from posthaste.receive('q', $1, $2::text::interval, jsonb_build_object('subscription', $3::text))`, 1+r.IntN(12), lease, subscription)
		if err != nil {
			x.fault("error: receive: %v", err)
			return
		}
		got, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (keyedDelivery, error) {
			d := keyedDelivery{keyedID: keyedID{subscription: subscription}}
			return d, row.Scan(&d.delivery, &d.message, &d.attempt)
		})
		if err != nil {
			x.fault("error: receive: %v", err)
			return
		}
		if abandon {
			for i := range got {
				x.mu.Lock()
				got[i].m = x.messages[got[i].keyedID]
				x.mu.Unlock()
				x.tells(&got[i], fmt.Sprint("abandoned ", got[i].delivery))
			}
			continue
		}
		for i := range got {
			x.begins(&got[i])
		}
		for i := range got {
			d := &got[i]
			x.gives(d) // before the answer, for the next may be faster
			x.tells(d, "settling")
			switch k := r.IntN(10); {
			case k == 0:
				x.settled(conn, "fail", `select settled from posthaste.fail($1, 'again', '{"retry_after": "5 milliseconds"}')`, d.delivery)
			case k == 1:
				x.settled(conn, "release", `select settled from posthaste.release(array[$1::bigint])`, d.delivery)
			default:
				x.done(d, true)
				if !x.settled(conn, "ack", `select settled from posthaste.ack(array[$1::bigint])`, d.delivery) && x.ctx.Err() == nil {
					x.fault("an ack within the lease was refused")
				}
			}
		}
		if len(got) == 0 {
			time.Sleep(time.Duration(r.IntN(5)) * time.Millisecond)
		}
	}
}

func (x *keyedRun) worker(conn *pgx.Conn, r *rand.Rand, subscription string) {
	for x.ctx.Err() == nil {
		var id int64
		if err := conn.QueryRow(context.Background(), `select posthaste.worker_register('w', 'test', '1 hour')`).Scan(&id); err != nil {
			x.fault("error: register: %v", err)
			return
		}
		for number := int64(1); x.ctx.Err() == nil; number++ {
			rows, err := conn.Query(context.Background(), `select delivery_id, message_id, attempt from posthaste.claim($1, $2, 'q', $4, $3, false, true, true, false, 1000) where delivery_id is not null`,
				id, number, 1+r.IntN(20), subscription)
			if err != nil {
				x.fault("error: claim: %v", err)
				return
			}
			got, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (keyedDelivery, error) {
				d := keyedDelivery{keyedID: keyedID{subscription: subscription}}
				return d, row.Scan(&d.delivery, &d.message, &d.attempt)
			})
			if err != nil {
				x.fault("error: claim: %v", err)
				return
			}
			if len(got) == 0 {
				time.Sleep(time.Duration(r.IntN(5)) * time.Millisecond)
			}
			dies := r.IntN(20) == 0
			stopped := map[string]bool{}
			for i := range got {
				d := &got[i]
				if dies && i == len(got)/2 {
					break
				}
				key := x.keyOf(d.keyedID)
				if stopped[key] {
					x.settle(conn, d.delivery, "released")
					continue
				}
				x.begins(d)
				x.gives(d)
				if r.IntN(10) == 0 {
					stopped[key] = true
					x.settle(conn, d.delivery, "retried")
					continue
				}
				x.done(d, true)
				if !x.settle(conn, d.delivery, "done") && x.ctx.Err() == nil {
					x.fault("a settle of a living worker was refused")
				}
			}
			if dies {
				x.exec(conn, `update posthaste.registrations set heartbeat_at = '-infinity', lease = '0' where id = $1`, id)
				break
			}
		}
	}
}

func (x *keyedRun) keyOf(id keyedID) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	if m := x.messages[id]; m != nil {
		return m.key.key
	}
	return ""
}

func (x *keyedRun) settle(conn *pgx.Conn, delivery int64, outcome string) bool {
	var settled *bool
	err := conn.QueryRow(context.Background(), `select settled from posthaste.settle('{}', '{}', array[$1::bigint], array[$2::text], array['again'], array[0.005::float8], array[null::text], array[null::real])`,
		delivery, outcome).Scan(&settled)
	if errors.Is(err, pgx.ErrNoRows) {
		return true
	}
	if err != nil {
		if x.ctx.Err() == nil {
			x.fault("error: settle %s: %v", outcome, err)
		}
		return false
	}
	return settled == nil || *settled
}

// Of each key one message after the other, in the order in which they were sent,
// each done exactly once, however often it is tried, and nothing left behind.
func TestInterleavingKeyed(t *testing.T) {
	for _, x := range []*keyedRun{
		{options: `{"ordered": true, "lanes": 2, "max_attempts": 1000}`, ordered: true, cap: 1, keys: 6},
		{options: `{"ordered": true, "lanes": 3, "max_attempts": 1000}`, ordered: true, workers: 3, keys: 6},
		{options: `{"key_concurrency": 2, "max_attempts": 1000}`, cap: 2, keys: 6},
		{options: `{"key_rate_limit": {"limit": 200, "burst": 20}, "max_attempts": 1000}`, keys: 6},
		{options: `{"fair": true, "max_attempts": 1000}`, keys: 6, workers: 2},
	} {
		t.Run(x.options, func(t *testing.T) {
			t.Parallel()
			x.t, x.url, x.seed = t, testpg.New(t), seed(t)
			x.run(seconds(t, 3), patience)
			for _, f := range x.faults {
				t.Error(f)
			}
			if len(x.messages) < enough {
				t.Errorf("only %d messages were sent", len(x.messages))
			}
		})
	}
}

// So also where a fair queue's claims come so little on in the log that much of it is
// read ahead, in steps that are as small.
func TestInterleavingFairAhead(t *testing.T) {
	t.Parallel()
	x := &keyedRun{options: `{"fair": true, "max_attempts": 1000}`, keys: 6, workers: 2}
	x.t, x.url, x.seed = t, testpg.New(t), seed(t)
	breakFunctions(t, x.url, []patch{
		{file: "claim_keyed.sql", old: "when q.fair and handed = p_max then 1024 when q.fair then 4096", new: "when q.fair then 3"},
		{file: "claim_keyed.sql", old: "then t + interval '50 milliseconds' else t end", new: "then t else t end"},
		{file: "read_ahead.sql", old: "a.last_xid, a.last_pos, 8192, l)", new: "a.last_xid, a.last_pos, 5, l)"},
		{file: "read_ahead.sql", old: "if n < 8192 then", new: "if n < 5 then"},
		{file: "read_ahead.sql", old: "case when a.parked < 8192 then 2048 when", new: "case when a.parked < 8192 then 3 when"},
	})
	x.run(seconds(t, 3), patience)
	for _, f := range x.faults {
		t.Error(f)
	}
	if len(x.messages) < 20 {
		t.Errorf("only %d messages were sent", len(x.messages))
	}
}

// keyedTwins are the shipped functions with one condition broken, which the random
// interleavings of keyed queues must find.
var keyedTwins = []struct{ name, file, old, new string }{
	{"what was withdrawn is handed out", "pass_log.sql", "case when e.out is not null then e.out", "case when false then e.out"},
	{"cancelling outside the lock", "hold_message.sql", "    perform posthaste.lock_reader(v_reader, true);\n", "    null;\n"},
	{"copied by the transaction's id", "copy_begin.sql", "ord := posthaste.ord_now();", "ord := pg_current_xact_id();"},
}

func TestInterleavingKeyedFindsBrokenTwins(t *testing.T) {
	for _, twin := range keyedTwins {
		t.Run(strings.ReplaceAll(twin.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			for n := 0; time.Since(begun) < 5*time.Minute; n++ {
				x := &keyedRun{options: `{"ordered": true, "lanes": 1, "max_attempts": 1000}`, ordered: true, keys: 6}
				if n%2 == 0 {
					x.workers = 3
				} else {
					x.cap = 1
				}
				x.t, x.url, x.seed = t, testpg.New(t), seed(t)
				breakFunction(t, x.url, twin.file, twin.old, twin.new)
				if x.run(5*time.Second, 5*time.Second); len(x.faults) > 0 {
					t.Logf("found after %s: %s", time.Since(begun).Round(time.Second), x.faults[0])
					return
				}
			}
			t.Error("the broken function was not found")
		})
	}
}
