//go:build unix

package outbox

import (
	"context"
	"encoding/binary"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthaste-mq/posthaste/internal/devpg"
	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// leave is the statement in docs/migrate/outbox.md.
const leave = `
alter publication dbz_publication drop table public.outbox;
`

// A trigger that is installed in one transaction with the publication's change divides the
// rows between logical decoding, which Debezium reads, and the ledger.
func TestLeavingAPublication(t *testing.T) {
	t.Parallel()
	ctx := newContext(t)
	server := testpg.Server(t, func(c *devpg.Config) {
		settings := map[string]string{"wal_level": "logical"}
		maps.Copy(settings, c.Settings)
		c.Settings = settings
	})
	conn := connect(t, ctx, server.URL())
	exec(t, ctx, conn, `create table public.outbox (id bigserial primary key, aggregatetype text, aggregateid text, type text, payload jsonb);
		create publication dbz_publication for table public.outbox`)
	exec(t, ctx, conn, "select posthaste.create_queue('outbox')")
	exec(t, ctx, conn, "select pg_create_logical_replication_slot('debezium', 'pgoutput')")
	table, err := Open(ctx, conn, Mapping{Table: "public.outbox", ID: "id", Payload: "payload", Key: "aggregateid", Kind: "type",
		HeaderColumns: map[string]string{"aggregatetype": "aggregatetype"}, Queue: "outbox", Delete: true})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(ctx, server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	h := &handover{t: t, ctx: ctx, pool: pool}
	var writers sync.WaitGroup
	stop := make(chan struct{})
	for range 3 {
		h.loop(&writers, stop, func() error {
			var id string
			err := pool.QueryRow(ctx, "insert into public.outbox (aggregatetype, aggregateid, type, payload) values ('order', '7', 'placed', '1') returning id::text").Scan(&id)
			if err == nil {
				h.add(&h.committed, id)
			}
			return err
		})
	}
	h.until("rows before", func() bool { return h.size(&h.committed) > 100 })
	if err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, table.TriggerSQL()+leave)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	before := h.size(&h.committed)
	h.until("rows after", func() bool { return h.size(&h.committed) > before+100 })
	close(stop)
	writers.Wait()

	decoded := inserts(t, ctx, conn)
	sent := query[string](t, ctx, conn, "select reference from posthaste.messages")
	if len(decoded) < 100 || len(sent) < 100 {
		t.Errorf("%d decoded, %d sent: the test shows nothing", len(decoded), len(sent))
	}
	got := append(decoded, sent...)
	slices.Sort(got)
	slices.Sort(h.committed)
	if !slices.Equal(got, h.committed) {
		t.Errorf("%d rows went %d times by logical decoding and %d times by the ledger", len(h.committed), len(decoded), len(sent))
	}
}

// inserts returns the ids of the rows whose inserts logical decoding shows.
func inserts(t *testing.T, ctx context.Context, conn *pgx.Conn) (ids []string) {
	t.Helper()
	const head = 1 + 4 + 1 + 2 + 1 // I, relation, N, columns, t: then length and text of the first column
	for _, change := range query[[]byte](t, ctx, conn,
		"select data from pg_logical_slot_get_binary_changes('debezium', null, null, 'proto_version', '1', 'publication_names', 'dbz_publication')") {
		if change[0] == 'I' {
			length := binary.BigEndian.Uint32(change[head:])
			ids = append(ids, string(change[head+4:head+4+int(length)]))
		}
	}
	return ids
}
