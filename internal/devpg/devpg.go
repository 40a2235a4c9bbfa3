//go:build unix

package devpg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
)

// Server is a running PostgreSQL, which runs until [Server.Stop] or the end of this process.
// Its methods are safe for concurrent use.
type Server struct {
	config   Config
	binaries binaries
	location *location
	port     int

	mu     sync.Mutex // held while PostgreSQL is started or stopped
	daemon *daemon    // nil when stopped
	guard  *guard     // nil before the first start and after Stop
	closed bool       // the ephemeral cluster was removed
}

// Start starts PostgreSQL in c.DataDir, creates the cluster and the database if they are
// missing, and returns when it accepts connections. An invalid config, a port in use and a
// DataDir in use by another live process are [*posthaste.Error]s. If ctx ends first, nothing
// is left running.
func Start(ctx context.Context, c Config) (*Server, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	if c.DataDir == "" {
		if c.DataDir, err = os.MkdirTemp("", "posthaste-postgres-"); err != nil {
			return nil, fmt.Errorf("the directory of the cluster cannot be created: %w", err)
		}
		if err := os.Chmod(c.DataDir, 0o711); err != nil { // so that the user that PostgreSQL runs as can enter it
			return nil, fmt.Errorf("the directory of the cluster cannot be opened to other users: %w", err)
		}
	}
	p, err := openLocation(c.DataDir)
	if err != nil {
		return nil, err
	}
	s := &Server{config: c, location: p, port: c.Port}
	if err := s.prepare(ctx); err != nil {
		s.letGo()
		return nil, err
	}
	if err := s.Restart(ctx); err != nil {
		s.letGo()
		return nil, err
	}
	if err := s.createDatabase(ctx); err != nil {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
		defer cancel()
		return nil, errors.Join(err, s.Stop(stop))
	}
	return s, nil
}

// prepare does everything before the first start of the server: it finds the binaries and the
// cluster, stops leftovers of an earlier process, and runs initdb.
func (s *Server) prepare(ctx context.Context) error {
	version, err := s.location.version()
	if err != nil {
		return err
	}
	if s.config.Version == "" && s.config.BinDir == "" {
		if s.config.Version = version; version == "" {
			s.config.Version = "18"
		}
	}
	who, err := s.location.owner()
	if err != nil {
		return err
	}
	if s.binaries, err = findBinaries(ctx, s.config, who); err != nil {
		return err
	}
	if version != "" && s.binaries.major() != version {
		return &posthaste.Error{Code: posthaste.CodeConflict, Field: "version",
			Message: fmt.Sprintf("the cluster in %s was created by PostgreSQL %s and cannot be used by %s", s.location.cluster(), version, s.binaries.version),
			Hint:    "use that version, or another data directory"}
	}
	if version == "" {
		s.config.Progress(StageInit, 0, 0)
		return s.location.create(ctx, s.binaries, who, s.config)
	}
	return stopLeftovers(ctx, s.location.cluster())
}

// Restart stops PostgreSQL if it runs, and starts it again with the same port and settings. It
// also starts it after Stop and Kill.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return &posthaste.Error{Code: posthaste.CodeNotFound, Message: "the ephemeral cluster was removed when it was stopped"}
	}
	if err := s.location.lock(); err != nil {
		return err
	}
	if s.guard == nil {
		g, err := startGuard(s.location, s.config.Ephemeral)
		if err != nil {
			return err
		}
		s.guard = g
		running.Store(s, true)
	}
	if err := s.stop(ctx); err != nil {
		return err
	}
	s.config.Progress(StageStart, 0, 0)
	return s.start(ctx)
}

// start tries several ports if it may choose, because a port that was just free may be in use
// when PostgreSQL opens it. It also retries while the shared memory of a killed PostgreSQL is
// still being released.
func (s *Server) start(ctx context.Context) error {
	for try, begun := 1, time.Now(); ; try++ {
		port := s.port
		if port == 0 {
			var err error
			if port, err = freePort(); err != nil {
				return err
			}
		} else if err := portFree(port); err != nil {
			return err
		}
		d, err := startDaemon(ctx, s.binaries, s.location, s.guard, port, s.config)
		if err == nil {
			s.daemon, s.port = d, port
			return nil
		}
		if strings.Contains(err.Error(), "pre-existing shared memory block") && time.Since(begun) < 5*lockPatience {
			try--
			time.Sleep(10 * pollEvery)
			continue
		}
		if s.port != 0 || try == 5 || portFree(port) == nil {
			return err
		}
	}
}

// URL returns the superuser's URL of the database, including the password.
func (s *Server) URL() string { return s.url(s.config.Database) }

func (s *Server) url(database string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(s.config.User, s.config.Password),
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port())), Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String()
}

// Port returns PostgreSQL's port on 127.0.0.1.
func (s *Server) Port() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.port
}

// DataDir returns the actual directory of the cluster.
func (s *Server) DataDir() string { return s.location.cluster() }

// Version returns the exact version of the binaries, such as "18.3".
func (s *Server) Version() string { return s.binaries.version }

// Done returns a channel that is closed when the PostgreSQL that was started last has ended
// for any reason.
func (s *Server) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.daemon == nil {
		done := make(chan struct{})
		close(done)
		return done
	}
	return s.daemon.done
}

// Stop shuts PostgreSQL down: clients are disconnected and everything is written to disk. If
// ctx ends first, PostgreSQL is shut down immediately, and the next start recovers it.
// Afterwards DataDir is unlocked, and an ephemeral cluster is removed. Stopping twice does
// nothing.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.stop(ctx)
	s.letGo()
	return err
}

// running protects running servers from the garbage collector, which would close their lock
// and the guard's pipe.
var running sync.Map

// letGo releases the guard and the lock, and removes the cluster if it is ephemeral.
func (s *Server) letGo() {
	defer func() {
		if s.guard != nil {
			s.guard.release()
			s.guard = nil
		}
		running.Delete(s)
	}()
	if s.config.Ephemeral && !s.closed {
		s.closed = true
		s.location.remove()
		return
	}
	s.location.unlock()
}

func (s *Server) stop(ctx context.Context) error {
	if s.daemon == nil {
		return nil
	}
	signals := []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT}
	if s.config.Ephemeral {
		signals = signals[1:] // nothing needs to be written to disk
	}
	err := s.daemon.stop(ctx, signals...)
	s.daemon = nil
	return err
}

// Kill ends the postmaster and every backend with SIGKILL, as in a crash, and returns when all
// are gone. DataDir stays locked by this server, and Restart recovers it.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kill()
}

func (s *Server) kill() error {
	if s.daemon == nil {
		return nil
	}
	err := s.daemon.kill()
	s.daemon = nil
	return err
}

func (s *Server) createDatabase(ctx context.Context) error {
	if s.config.Database == "postgres" {
		return nil
	}
	conn, err := pgx.Connect(ctx, s.url("postgres"))
	if err != nil {
		return &posthaste.Error{Code: posthaste.CodeDenied, Message: "PostgreSQL started but rejects the configured user or password",
			Hint: "a cluster keeps the user and password it was created with", Cause: err}
	}
	defer conn.Close(ctx)
	var exists, set bool
	err = conn.QueryRow(ctx, `select d.oid is not null,
		       exists (select from pg_db_role_setting s, unnest(s.setconfig) c where s.setdatabase = d.oid and s.setrole = 0 and c like 'search\_path=%')
		  from (values ($1)) wanted (name) left join pg_database d on d.datname = wanted.name`, s.config.Database).Scan(&exists, &set)
	if err != nil {
		return err
	}
	name := pgx.Identifier{s.config.Database}.Sanitize()
	if !exists {
		if _, err := conn.Exec(ctx, "create database "+name); err != nil {
			return err
		}
	}
	if set {
		return nil
	}
	// PostgreSQL's default search_path begins with "$user". If a schema had the user's name,
	// every unqualified `create table` would create its table there.
	_, err = conn.Exec(ctx, "alter database "+name+" set search_path = public")
	return err
}

func freePort() (int, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("no free port for PostgreSQL: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// portFree returns an error that names the port if PostgreSQL could not listen on it.
func portFree(port int) error {
	l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err == nil {
		return l.Close()
	}
	e := &posthaste.Error{Code: posthaste.CodeConflict, Field: "port", Cause: err,
		Message: fmt.Sprintf("PostgreSQL cannot listen on 127.0.0.1:%d: %v", port, err)}
	if errors.Is(err, syscall.EADDRINUSE) {
		e.Message = fmt.Sprintf("port %d on 127.0.0.1, wanted for PostgreSQL, is taken by another program", port)
		e.Hint = "stop that program or choose another port"
	}
	return e
}
