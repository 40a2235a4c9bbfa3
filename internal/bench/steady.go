package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/posthaste-mq/posthaste/postgres"
)

const (
	// usedPerSecond is what flow takes of the shared buffers, and writes to the log,
	// in a second at most: 190,000 messages a second take 60 MB, and 75.
	usedPerSecond = 80 << 20
	// logRecord is how much log one step of steady writes.
	logRecord = 64 << 20
)

// steady brings the embedded server into the state of one that has run for a while:
// the shared buffers that the run needs have been used, and its log has files to write
// anew. A fresh server takes both from the system page by page as it goes, and the
// longer a run lasts the dearer a page becomes where a virtual machine has given back
// what it did not use: 2 µs at first and 12 later were measured. A server that is not
// ours is taken as it is.
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
		// Four rows a page. Nothing of it need be written before it is dropped.
		fmt.Sprintf("insert into bench_filler select pg_catalog.repeat('x', 1900) from pg_catalog.generate_series(1, %d)", min(used, buffers)/8192*4),
		"drop table bench_filler",
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("the server's memory cannot be used: %w", err)
		}
	}
	// Not for longer than it takes on top: the rest is as it is on a fresh server.
	for written, begun := int64(0), time.Now(); written < min(used, log) && time.Since(begun) < r.during/2; written += logRecord {
		if _, err := conn.Exec(ctx, "select pg_catalog.pg_logical_emit_message(false, 'bench', pg_catalog.repeat(pg_catalog.repeat('x', 8192), $1))", logRecord/8192); err != nil {
			return fmt.Errorf("the server's log cannot be made: %w", err)
		}
	}
	if _, err := conn.Exec(ctx, "checkpoint"); err != nil {
		return fmt.Errorf("the server's log cannot be made: %w", err)
	}
	return nil
}
