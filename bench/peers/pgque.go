package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"
)

// pgque is PgQue, used through its SQL functions. The worker is also its ticker, as its manual
// suggests if pg_cron is missing.
type pgque struct {
	inGo
	schema, version string // of the clone named by --pgque
}

const pgqueConsumer = "bench"

func (p *pgque) about() about {
	return about{name: "pgque", version: p.version, producers: 2, limit: 100_000}
}

func (*pgque) rows(scenario string) []string { return usual(scenario) }

func (p *pgque) prepare(_ context.Context, t *tools) error {
	if t.pgque == "" {
		return errors.New("no clone of PgQue was given; name its directory with --pgque")
	}
	b, err := os.ReadFile(filepath.Join(t.pgque, "sql", "pgque.sql"))
	if err != nil {
		return fmt.Errorf("%s is not a clone of PgQue: %w", t.pgque, err)
	}
	p.schema, p.version = string(b), "unknown version"
	if m := regexp.MustCompile(`(?m)^-- Version: (\S+)`).FindSubmatch(b); m != nil {
		p.version = string(m[1])
	}
	return nil
}

func (p *pgque) install(ctx context.Context, o order) error {
	statements := []string{p.schema,
		fmt.Sprintf("select pgque.create_queue('%s')", o.Queue),
		fmt.Sprintf("select pgque.subscribe('%s', '%s')", o.Queue, pgqueConsumer)}
	if o.Row == best {
		statements = append(statements, fmt.Sprintf("select pgque.set_queue_config('%s', 'ticker_max_count', '1')", o.Queue))
	}
	return execute(ctx, o.URL, statements...)
}

func (*pgque) sender(ctx context.Context, o order) (sender, error) {
	return newSQLSender(ctx, o, "select pgque.send($1, $2::text)", "select pgque.send_batch($1, $2::text[])")
}

func (*pgque) work(ctx context.Context, o order, t *tally, ready func()) error {
	period := 100 * time.Millisecond
	if o.Row == best {
		period = 10 * time.Millisecond
	}
	conn, err := pgx.Connect(ctx, o.URL)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "listen "+pgx.Identifier{"pgque_" + o.Queue}.Sanitize()); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { cancel(tick(ctx, o.URL, period)) }()
	ready()
	for ctx.Err() == nil {
		got, err := pgqueBatch(ctx, conn, o.Queue, t)
		if err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		if got {
			continue
		}
		waiting, stop := context.WithTimeout(ctx, time.Second)
		_, err = conn.WaitForNotification(waiting)
		stop()
		if err != nil && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
	return context.Cause(ctx)
}

// pgqueBatch handles and acknowledges one batch, and reports whether there was one.
func pgqueBatch(ctx context.Context, conn *pgx.Conn, queue string, t *tally) (bool, error) {
	// A batch is acknowledged as a whole, so it must be received as a whole.
	rows, err := conn.Query(ctx, "select batch_id, payload from pgque.receive($1, $2, $3)", queue, pgqueConsumer, math.MaxInt32)
	if err != nil {
		return false, err
	}
	var batch int64
	var message []byte
	if _, err := pgx.ForEachRow(rows, []any{&batch, &message}, func() error { t.encoded(message); return nil }); err != nil || batch == 0 {
		return false, err
	}
	_, err = conn.Exec(ctx, "select pgque.ack($1)", batch)
	return true, err
}

// tick runs PgQue's ticker and, every 30 s, its maintenance.
func tick(ctx context.Context, url string, period time.Duration) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	ticks := time.NewTicker(period)
	defer ticks.Stop()
	maintained := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
		if _, err := conn.Exec(ctx, "select pgque.ticker()"); err != nil {
			return err
		}
		if time.Since(maintained) < 30*time.Second {
			continue
		}
		maintained = time.Now()
		if _, err := conn.Exec(ctx, "select pgque.maint_retry_events(), pgque.maint()"); err != nil {
			return err
		}
	}
}
