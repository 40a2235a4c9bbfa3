//go:build unix

package acceptance

import (
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// prepare creates states that traffic alone seldom leaves in a ledger: a fair queue with much
// of its log read ahead, messages of which were left there, parked, handed out and settled;
// parked messages of an ordered queue; and terms that were found for messages without any, of
// one that waits for its retry and of one that is settled.
func (b *books) prepare() {
	b.Helper()
	take := func(queue, subscription string, most int, lease time.Duration) []delivery {
		b.Helper()
		received, err := b.receive(b.ctx, queue, subscription, most, lease)
		if err != nil {
			b.Fatal(err)
		}
		return received
	}
	const send = `insert into sent select posthaste.send($1, '{}', jsonb_strip_nulls(jsonb_build_object('kind', 'b', 'key', $2::text))), $1, 'b', $2, case when $1 = 'ordered' then g end, false
		from generate_series(1, $3) g`

	// In small steps, of which a claim of a large queue makes as many.
	b.broken("claim_keyed.sql", "when q.fair and handed = p_max then 1024 when q.fair then 4096", "when q.fair then 3", "then t + interval '50 milliseconds' else t end", "then t else t end")
	b.broken("read_ahead.sql", "case when a.parked < 8192 then 2048 when", "case when a.parked < 8192 then 3 when")
	b.exec(send, "turns", "large", 60)
	b.exec(send, "turns", "medium", 20)
	for _, key := range []string{"small-1", "small-2", "small-3", "small-4", "small-5", "small-6"} {
		b.exec(send, "turns", key, 3)
	}
	for range 3 {
		if err := b.settle(b.ctx, "turns", "default", take("turns", "default", 4, time.Hour)...); err != nil {
			b.Fatal(err)
		}
	}
	for range 2 {
		take("turns", "default", 4, time.Hour)
	}
	if err := b.settle(b.ctx, "turns", "odd", take("turns", "odd", 10, time.Hour)...); err != nil {
		b.Fatal(err)
	}
	b.broken("claim_keyed.sql")
	b.broken("read_ahead.sql")

	b.exec(send, "ordered", "held", 3)
	take("ordered", "default", 1, time.Hour)
	take("ordered", "default", 10, time.Hour)

	b.exec(send, "found", nil, 1)
	b.exec(send, "kept", nil, 1)
	for queue, outcome := range map[string]string{"found": "retried", "kept": "done"} {
		d := take(queue, "default", 1, time.Hour)[0]
		b.exec(`select posthaste.settle('{}', '{}', array[$1::bigint], array[$2::text], array['no'], array[0.0], array[null::text], array[null::real], true, array['["to:someone"]'])`, d.ID, outcome)
	}
	b.exec(`insert into effects (queue, subscription, id) select 'kept', 'default', id from sent where queue = 'kept'`)
	// A part of one claim.
	b.exec(send, "kept", nil, 2)
	if err := b.settle(b.ctx, "kept", "default", take("kept", "default", 2, time.Hour)[0]); err != nil {
		b.Fatal(err)
	}
}

// isPrepared fails the test unless the copy has all of these states.
func (b *books) isPrepared() {
	b.Helper()
	for what, sql := range map[string]string{
		"message that is in flight":                  `select count(*) from posthaste.claims c join posthaste.leases l on l.claim = c.id and l.place is null where c.places > 0 and posthaste.claim_open(c)`,
		"message that was read ahead and is parked":  `select count(*) from posthaste.cancelled z join posthaste.parked p on p.pos = z.pos and p.subscriber = z.subscriber where z.outcome = 'parked'`,
		"message that was read ahead and is settled": `select count(*) from posthaste.cancelled z join effects f on f.id = z.pos and f.queue = 'turns' and f.subscription = 'default' where z.outcome = 'parked' and z.subscriber & 1023 = 0`,
		"message that was read ahead and is in flight": `select count(*) from posthaste.cancelled z where z.outcome = 'parked' and z.subscriber & 1023 = 0
			and not exists (select from effects f where f.id = z.pos and f.subscription = 'default') and not exists (select from posthaste.parked p where p.message_id = z.pos and p.subscriber = z.subscriber)`,
		"key of which messages were left in the log":    `select count(*) from posthaste.ahead_keys k join posthaste.ahead a using (subscriber, lane) where k.left_in_log`,
		"message of an ordered queue that is parked":    `select count(*) from posthaste.parked p join posthaste.queue_settings q on q.id = p.subscriber >> 10 where q.name = 'ordered'`,
		"message that waits with words that were found": `select count(*) from posthaste.entries e where e.terms is not null`,
		"settled message with words that were found":    `select count(*) from posthaste.outcomes o where o.terms is not null`,
	} {
		if ask[int](b, sql) == 0 {
			b.Fatalf("the copy has no %s", what)
		}
	}
}

// afterRebase describes the faults of a ledger that was just rebased, before anything is
// handed out.
func (b *books) afterRebase() string {
	b.Helper()
	// No transaction ids of another server are left: in a copy whose ids are lower, those are
	// still in the future.
	rows, _ := b.Query(b.ctx, `select c.relname::text, a.attname::text, a.atttypid = 'pg_snapshot'::regtype
		from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
		where c.relnamespace = 'posthaste'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition and a.atttypid in ('xid8'::regtype, 'pg_snapshot'::regtype)`)
	columns, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
		Table, Name string
		Snapshot    bool
	}])
	if err != nil || len(columns) < 20 {
		b.Fatalf("%d columns with transaction ids: %v", len(columns), err)
	}
	for _, c := range columns {
		id := pgx.Identifier{c.Name}.Sanitize()
		if c.Snapshot {
			id = "pg_snapshot_xmax(" + id + ")"
		}
		if n := ask[int](b, `select count(*) from `+pgx.Identifier{"posthaste", c.Table}.Sanitize()+` where `+id+` > pg_snapshot_xmax(pg_current_snapshot())`); n > 0 {
			return strings.Join([]string{"ids of the original's are left in", c.Table, c.Name}, " ")
		}
	}
	if ask[bool](b, `select exists (select from posthaste.ahead) or exists (select from posthaste.ahead_keys)`) {
		return "it is still noted how far a queue was read ahead"
	}
	if n := ask[int](b, `select count(*) from effects f where f.queue = 'kept' and not exists (select from posthaste.history h where h.message_id = f.id)`); n > 0 {
		return fmt.Sprintf("%d settled messages of a queue with a retention are not in its history", n)
	}
	for _, queue := range []string{"found", "kept"} {
		if n := ask[int](b, `select count(*) from posthaste.message((select min(id) from sent where queue = $1)) m where m.terms = '{to:someone}'`, queue); n != 1 {
			return "words that were found for a message of " + queue + " are gone"
		}
	}
	return ""
}
