//go:build unix

package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devpg"
	"github.com/posthaste-mq/posthaste/internal/history"
	"github.com/posthaste-mq/posthaste/postgres"
)

// postgresStore is a PostgreSQL with a ledger.
type postgresStore struct {
	*rig
	server *devpg.Server
	small  string // the mounted file system of the data, if there is one
}

func (s *postgresStore) cast() []string {
	return []string{roleServer, roleSender, roleSender, roleSQLSender, roleHTTPSender,
		roleWorker, roleWorker, roleWorker, roleSQLReceiver, roleHTTPReceiver, roleMailWorker, roleMailWorker, roleRelay, roleRelay}
}

func (s *postgresStore) queues() []string {
	return []string{Plain, Ordered, Effects, Once, Mails, Relayed, Shared, Deduped, Limited, Ticks}
}

func (s *postgresStore) deadliest() Fault { return KillPostgres }

func (s *postgresStore) variable() string { return "DATABASE_URL" }

func (s *postgresStore) address() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.server.Port()))
}

func (s *postgresStore) urlAt(address, process string) (string, error) {
	u, err := url.Parse(s.server.URL())
	if err != nil {
		return "", err
	}
	u.Host = address
	q := u.Query()
	q.Set("application_name", process)
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// tellsEnd looks for the message ReadyForQuery outside a transaction, which follows the commit
// of a request. Type, length and "idle" together make it certain enough.
func (s *postgresStore) tellsEnd(sent []byte) bool {
	return bytes.Contains(sent, []byte("Z\x00\x00\x00\x05I"))
}

func (s *postgresStore) start(ctx context.Context) (posthaste.Store, error) {
	pg := s.Postgres
	pg.DataDir = filepath.Join(s.Dir, "data")
	if err := s.makeSmall(pg.DataDir); err != nil {
		s.leaveOut(DiskFull, err.Error(), false)
	}
	log, err := os.Create(filepath.Join(s.Dir, "postgres.log"))
	if err != nil {
		return nil, err
	}
	pg.Log = log
	if s.server, err = devpg.Start(ctx, pg); err != nil {
		return nil, err
	}
	if out, err := s.program(ctx, s.server.URL(), "migrate", "up").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("posthaste migrate up: %w: %s", err, out)
	}
	// Use small slots, so that the ring advances many times.
	if err := s.sql(ctx, effectsTable, "update posthaste.settings set slot_rows = 4096", s.Sabotage); err != nil {
		return nil, err
	}
	return postgres.Open(ctx, s.server.URL(), postgres.WithPoolSize(4), postgres.WithLogger(s.Log))
}

func (s *postgresStore) stop(ctx context.Context) error {
	var err error
	if s.server != nil {
		err = s.server.Stop(ctx)
	}
	return errors.Join(err, s.dropSmall())
}

// sql runs statements as the superuser, not through the proxy. It skips empty ones.
func (s *postgresStore) sql(ctx context.Context, statements ...string) error {
	return s.connected(ctx, func(conn *pgx.Conn) error {
		for _, s := range statements {
			if _, err := conn.Exec(ctx, s); err != nil {
				return fmt.Errorf("%.80s: %w", s, err)
			}
		}
		return nil
	})
}

func (s *postgresStore) connected(ctx context.Context, f func(conn *pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, s.server.URL())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return f(conn)
}

// look records the content of the ledger at the end, and the effects.
func (s *postgresStore) look(ctx context.Context) error {
	return s.connected(ctx, func(conn *pgx.Conn) error {
		for what, query := range map[string]string{
			"open claims":                          "select count(*) from posthaste.claims c where posthaste.claim_open(c)",
			"parked messages":                      "select count(*) from posthaste.parked",
			"dead letters":                         "select count(*) from posthaste.dead_letters",
			"slots kept by claims or transactions": `select count(*) from posthaste.oldest_slot() where blocker not like 'subscription %'`,
		} {
			var n int
			if err := conn.QueryRow(ctx, query).Scan(&n); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			s.leftBehind(what, n)
		}
		if err := s.diagnose(ctx, conn); err != nil {
			return err
		}
		var turns int
		if err := conn.QueryRow(ctx, "select max(epoch)::int from posthaste.slots where live").Scan(&turns); err != nil {
			return err
		}
		s.record.Record(history.Event{Kind: Turned, Count: turns})
		rows, err := conn.Query(ctx, "select token, part from chaos_effects")
		if err != nil {
			return err
		}
		effects, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct {
			Token string
			Part  int
		}])
		for _, e := range effects {
			s.record.Record(history.Event{Kind: Effect, Token: e.Token, Part: e.Part})
		}
		return err
	})
}

// diagnose records the faults that doctor finds. Server settings are ignored: an ephemeral server may
// run without fsync, which is safe if only processes are killed.
func (s *postgresStore) diagnose(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.Query(ctx, `select format('%s: %s', "check", message) from posthaste.doctor() where level = 'fault' and "check" <> 'settings'`)
	if err != nil {
		return err
	}
	faults, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, fault := range faults {
		s.leftBehind("fault that doctor finds, "+fault, 1)
	}
	return err
}

func (s *postgresStore) strikes() map[Fault]strike {
	return map[Fault]strike{
		KillPostgres: func() func(context.Context) error {
			return s.outage(KillPostgres, func(context.Context) error { return s.server.Kill() }, s.server.Restart)
		},
		Immediate: func() func(context.Context) error {
			return s.outage(Immediate, func(context.Context) error { return s.signalServer(syscall.SIGQUIT) }, s.server.Restart)
		},
		Fast: func() func(context.Context) error {
			return s.outage(Fast, func(context.Context) error { return s.signalServer(syscall.SIGINT) }, s.server.Restart)
		},
		DiskFull: s.fillDisk,
		Terminate: func() func(context.Context) error {
			return s.terminate(Terminate, "application_name = $1 and random() < 0.5", s.some(storeRoles...))
		},
		Listener: func() func(context.Context) error {
			return s.terminate(Listener, "application_name = $1 || ' doorbell'", s.some(workerRoles...))
		},
		Heartbeat: s.heartbeat,
		Snapshot: func() func(context.Context) error {
			return s.transaction(Snapshot, 15*time.Second, "select count(*) from posthaste.queue_settings")
		},
		Backup: func() func(context.Context) error {
			return s.transaction(Backup, 8*time.Second, `do $$ declare t text; begin
				for t in select format('%I.%I', schemaname, tablename) from pg_tables where schemaname = 'posthaste' loop
					execute 'lock table ' || t || ' in access share mode'; end loop; end $$`)
		},
		Migrate: s.migrate,
	}
}

// signalServer signals the postmaster of the rig's cluster, and waits until it has ended.
func (s *postgresStore) signalServer(sig syscall.Signal) error {
	raw, err := os.ReadFile(filepath.Join(s.server.DataDir(), "postmaster.pid"))
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(string(raw), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil || pid <= 1 {
		return fmt.Errorf("%q is not a process id", first)
	}
	if err := syscall.Kill(pid, sig); err != nil {
		return err
	}
	<-s.server.Done()
	return nil
}

// transaction keeps a transaction open for a while, after a statement.
func (s *postgresStore) transaction(kind Fault, most time.Duration, statement string) func(context.Context) error {
	long := most/2 + time.Duration(s.random.Int64N(int64(most/2)))
	return func(ctx context.Context) error {
		return s.connected(ctx, func(conn *pgx.Conn) error {
			return s.during(kind, "", func() (int, error) {
				tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
				if err != nil {
					return 0, err
				}
				defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
				if _, err := tx.Exec(ctx, statement); err != nil {
					return 0, err
				}
				hold(ctx, long)
				return 1, nil
			})
		})
	}
}

// migrate installs the schema again, from two processes at once.
func (s *postgresStore) migrate() func(context.Context) error {
	return func(ctx context.Context) error {
		return s.during(Migrate, "", func() (struck int, err error) {
			var both sync.WaitGroup
			errs := make([]error, 2)
			for i := range errs {
				both.Go(func() {
					if out, err := s.program(ctx, s.server.URL(), "migrate", "up").CombinedOutput(); err != nil {
						errs[i] = fmt.Errorf("%w: %s", err, out)
					}
				})
			}
			both.Wait()
			for _, failed := range errs {
				if failed == nil {
					struck++
				} else {
					err = failed
				}
			}
			return struck, err
		})
	}
}
