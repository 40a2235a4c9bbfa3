//go:build unix

package chaos

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// terminate ends backends of a process, as an administrator does: the current ones, or the
// first that appear within a while.
func (s *postgresStore) terminate(kind Fault, which string, place int) func(context.Context) error {
	return func(ctx context.Context) error {
		p := s.at(place)
		return s.connected(ctx, func(conn *pgx.Conn) error {
			s.whileInFlight(ctx, func() []string { return s.witnesses(p) })
			return s.during(kind, p.name, func() (int, error) { return endBackends(ctx, conn, which, p.name) })
		})
	}
}

// endBackends ends the backends of a process that match which, and counts them.
func endBackends(ctx context.Context, conn *pgx.Conn, which, process string) (n int, err error) {
	for end := time.Now().Add(2 * time.Second); n == 0 && err == nil && time.Now().Before(end); hold(ctx, 2*time.Millisecond) {
		err = conn.QueryRow(ctx, "select count(*) filter (where pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database() and "+which,
			process).Scan(&n)
	}
	return n, err
}

// living selects the registration of a worker by name, if it was not declared lost.
const living = " from posthaste.registrations where name = $1 and lost_at is null and ended_at is null"

// heartbeat ends the backend that runs a worker's heartbeat. A heartbeat takes only a fraction
// of a millisecond and cannot be seen otherwise, so the worker's row is locked just before the
// next one is due. The backend that waits for the lock is the heartbeat.
func (s *postgresStore) heartbeat() func(context.Context) error {
	place := s.some(workerRoles...)
	return func(ctx context.Context) error {
		p := s.at(place)
		return s.connected(ctx, func(locking *pgx.Conn) error {
			var age float64
			err := locking.QueryRow(ctx, "select extract(epoch from clock_timestamp() - heartbeat_at)::float8"+living+" order by id desc limit 1", p.registered()).Scan(&age)
			if err != nil {
				return err // it is not registered yet, or lost
			}
			hold(ctx, beat(s.leaseOf(p.role))-time.Duration(age*float64(time.Second))-100*time.Millisecond)
			return s.connected(ctx, func(ending *pgx.Conn) error {
				return s.during(Heartbeat, p.name, func() (n int, err error) {
					tx, err := locking.Begin(ctx)
					if err != nil {
						return 0, err
					}
					defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
					if _, err := tx.Exec(ctx, "select"+living+" for no key update", p.registered()); err != nil {
						return 0, err
					}
					n, err = endBackends(ctx, ending, "application_name = $1 and wait_event_type = 'Lock' and query like '%worker_heartbeat%'", p.name)
					if n == 0 && err == nil {
						err = errors.New("no heartbeat came")
					}
					return n, err
				})
			})
		})
	}
}
