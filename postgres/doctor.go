package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
)

// Doctor implements [posthaste.Observer]. It returns the findings of posthaste.doctor and those
// of checks that only a client can do on its connection to the database.
func (e *Engine) Doctor(ctx context.Context) ([]posthaste.Finding, error) {
	var all []posthaste.Finding
	err := e.query(ctx, func(rows pgx.Rows) error {
		var f posthaste.Finding
		if err := rows.Scan(&f.Check, &f.Fault, &f.Message, &f.Hint, &f.Queue, &f.Subscription); err != nil {
			return err
		}
		all = append(all, f)
		return nil
	}, `select d."check", d.level = 'fault', d.message, coalesce(d.hint, ''), coalesce(d.queue, ''), coalesce(d.subscription, '') from posthaste.doctor() d order by 2 desc, 1`)
	if err != nil {
		return nil, err
	}
	more, err := e.examineConnection(ctx)
	return append(all, more...), err
}

// examineConnection checks this process's connection to the database.
func (e *Engine) examineConnection(ctx context.Context) (all []posthaste.Finding, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	conn, err := e.pool.Acquire(ctx)
	if err != nil {
		return nil, readError(err)
	}
	defer conn.Release()
	var pid uint32
	var theirs time.Time
	begun := time.Now()
	if err := conn.QueryRow(ctx, "select pg_catalog.pg_backend_pid(), pg_catalog.clock_timestamp()").Scan(&pid, &theirs); err != nil {
		return nil, readError(err)
	}
	all = append(all, clockFinding(begun, time.Now(), theirs)...)
	// A pooler does not know the process id of the server process.
	if announced := conn.Conn().PgConn().PID(); announced != pid {
		all = append(all, posthaste.Finding{Check: "pooler",
			Message: "this program connects through a pooler",
			Hint:    "in session mode nothing needs to change; in transaction mode run serve, worker and receive with --polling-only (postgres.WithPollingOnly in Go)"})
	}
	source, err := shipped()
	if err != nil {
		return nil, err
	}
	have, err := recorded(ctx, conn)
	if err != nil {
		return nil, readError(err)
	}
	return append(all, versionFindings(source.status(have))...), nil
}

// clockSkew is the largest difference of this machine's clock and the database's that is not
// reported.
const clockSkew = 2 * time.Second

// clockFinding compares the database's time with this machine's before and after the query.
func clockFinding(before, after, theirs time.Time) []posthaste.Finding {
	off := time.Duration(0)
	switch {
	case theirs.Before(before):
		off = theirs.Sub(before)
	case theirs.After(after):
		off = theirs.Sub(after)
	}
	if off.Abs() <= clockSkew {
		return nil
	}
	return []posthaste.Finding{{Check: "clock",
		Message: fmt.Sprintf("the clocks of this machine and of the database differ by %s", off.Abs().Round(100*time.Millisecond)),
		Hint:    "synchronize both with NTP: only the database's clock decides when messages run, but times that this machine sends (send_at) or logs are wrong"}}
}

// versionFindings reports a schema that is newer than this program.
func versionFindings(all []MigrationStatus) []posthaste.Finding {
	i := slices.IndexFunc(all, func(m MigrationStatus) bool { return m.Unknown })
	if i < 0 {
		return nil
	}
	return []posthaste.Finding{{Check: "version",
		Message: fmt.Sprintf("the schema is newer than this program, but compatible with it: it has migration %04d_%s", all[i].Version, all[i].Name),
		Hint:    "upgrade this program; both versions run until then"}}
}
