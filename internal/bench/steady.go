package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/posthaste-mq/posthaste/postgres"
)

const (
	// usedPerSecond is more than flow uses of the shared buffers, and writes to the WAL, in a
	// second: 190,000 messages per second take 60 MB and 75 MB.
	usedPerSecond = 80 << 20
	// logRecord is the size of the WAL that one step of steady writes.
	logRecord = 64 << 20
)

// steady brings the embedded server into the state of one that has run for a while: it has used
// the shared buffers that the run needs, and has WAL files to recycle. A fresh server takes both
// from the system page by page. On a virtual machine that has returned unused memory, a page
// becomes more expensive the longer a run takes: 2 µs at first and 12 µs later. A given server
// is not changed.
func (s *server) steady(ctx context.Context, r *run) error {
	if s.stop == nil {
		return nil
	}
	conn, err := postgres.Connect(ctx, s.url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var buffers, log int64
	err = conn.QueryRow(ctx, `
		select pg_catalog.pg_size_bytes(current_setting('shared_buffers')), pg_catalog.pg_size_bytes(current_setting('min_wal_size'))`).Scan(&buffers, &log)
	if err != nil {
		return err
	}
	used := int64(r.during.Seconds() * usedPerSecond)
	r.phase("using the server's memory and log once")
	for _, statement := range []string{
		"create unlogged table bench_filler (filler text)",
		"alter table bench_filler alter filler set storage plain",
		// Four rows per page. None of them is written to disk before the drop.
		fmt.Sprintf("insert into bench_filler select pg_catalog.repeat('x', 1900) from pg_catalog.generate_series(1, %d)", min(used, buffers)/8192*4),
		"drop table bench_filler",
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("the server's memory cannot be used: %w", err)
		}
	}
	// At most for half of the duration. The rest stays as on a fresh server.
	for written, begun := int64(0), time.Now(); written < min(used, log) && time.Since(begun) < r.during/2; written += logRecord {
		if _, err := conn.Exec(ctx, "select pg_catalog.pg_logical_emit_message(false, 'bench', pg_catalog.repeat(pg_catalog.repeat('x', 8192), $1))", logRecord/8192); err != nil {
			return fmt.Errorf("the server's WAL cannot be written: %w", err)
		}
	}
	if _, err := conn.Exec(ctx, "checkpoint"); err != nil {
		return fmt.Errorf("the server's WAL cannot be written: %w", err)
	}
	return nil
}
