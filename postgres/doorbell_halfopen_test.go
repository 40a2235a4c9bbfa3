package postgres

import (
	"log/slog"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste/internal/testpg/testdb"
)

// A proxy that keeps the listening connection open and swallows what is sent on
// it is noticed, though TCP itself is well: the line is tried after a silence.
// What was sent meanwhile is found then.
func TestHalfOpenLineIsReplaced(t *testing.T) {
	b := newBellTest(t, 1)
	proxy := testdb.NewProxy(t, b.url)
	d := &doorbell{sleepers: make(map[string]*sleeper), byID: make(map[int32]*sleeper)}
	d.line = newLine(testPool(t, proxy.URL, 1).Config(), slog.New(slog.DiscardHandler), d)
	d.check = 100 * time.Millisecond
	conn, err := d.connect(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	go d.run(conn)
	t.Cleanup(d.Close)
	done := b.sleeps(testContext(t), d)
	// The look comes after the answer that it has the bell.
	eventually(t, "it sleeps by the bell", func() bool { return b.empty.Load() > 0 && b.holder("bell") != 0 })
	first := b.holder("bell")
	if n := proxy.Swallow("doorbell"); n != 1 {
		t.Fatalf("%d connections listen", n)
	}
	b.sendNow("q0")
	if err := b.returns(done); err != nil {
		t.Fatal(err)
	}
	eventually(t, "there is a new connection", func() bool {
		return one[bool](t, b.pool, `select exists (select from pg_stat_activity
			where datname = current_database() and application_name like '% doorbell' and pid <> $1)`, first)
	})
}
