package postgres

import (
	"log/slog"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste/internal/testpg/testdb"
)

// The doorbell detects a proxy that keeps the connection open but drops its data, because it
// checks the connection after a silence. It then finds the messages that were sent meanwhile.
func TestHalfOpenLineIsReplaced(t *testing.T) {
	b := newBellTest(t, 1)
	proxy := testdb.NewProxy(t, b.url)
	d := &doorbell{waiters: make(map[string]*waiter), byID: make(map[int32]*waiter)}
	d.listener = newListener(testPool(t, proxy.URL, 1).Config(), slog.New(slog.DiscardHandler), d)
	d.check = 100 * time.Millisecond
	conn, err := d.connect(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	go d.run(conn)
	t.Cleanup(d.Close)
	done := b.sleeps(testContext(t), d)
	// The look comes after the response that the session holds the bell key.
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
