package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
)

// Doctor implements [posthaste.Admin]: what the ledger finds, and what only a
// client can see of its way to the database.
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
	more, err := e.examineWay(ctx)
	return append(all, more...), err
}

// examineWay looks at this process's own way to the database.
func (e *Engine) examineWay(ctx context.Context) (all []posthaste.Finding, err error) {
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
	// Who stands between cannot know the server's own number.
	if greeted := conn.Conn().PgConn().PID(); greeted != pid {
		all = append(all, posthaste.Finding{Check: "pooler",
			Message: "a pooler is in the way: who answers is not the process of PostgreSQL that does the work",
			Hint:    "in its mode session all is well; in its mode transaction give serve, worker and receive --polling-only (postgres.WithPollingOnly in Go)"})
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

// clockSkew is how far this machine's clock may be from the database's.
const clockSkew = 2 * time.Second

// clockFinding compares this machine's clock, before and after the database was
// asked for its own.
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
		Hint:    "nothing is decided by this machine's, but times that it sends (send_at) and logs mislead: have both kept by NTP"}}
}

// versionFindings tells of a schema that is newer than this program.
func versionFindings(all []MigrationStatus) []posthaste.Finding {
	i := slices.IndexFunc(all, func(m MigrationStatus) bool { return m.Unknown })
	if i < 0 {
		return nil
	}
	return []posthaste.Finding{{Check: "version",
		Message: fmt.Sprintf("the schema is newer than this program, and compatible with it: it has the migration %04d_%s", all[i].Version, all[i].Name),
		Hint:    "replace this program by the newer one; until then both run"}}
}
