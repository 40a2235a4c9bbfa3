package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"github.com/posthaste-mq/posthaste/internal/cpumeter"
	"github.com/posthaste-mq/posthaste/internal/devpg"
)

// shownSettings are included in the result.
var shownSettings = []string{"fsync", "synchronous_commit", "full_page_writes", "wal_sync_method", "shared_buffers", "max_wal_size",
	"checkpoint_timeout", "autovacuum", "jit"}

// server is the PostgreSQL that all products use.
type server struct {
	url     *url.URL
	meter   cpumeter.Meter
	machine Machine
	stop    func(context.Context) error
	conn    *pgx.Conn // to a database in which nothing is measured
	made    int
	// counts says that pg_stat_statements is available.
	counts bool
}

// openServer starts the embedded PostgreSQL, or connects to the given one.
func openServer(ctx context.Context, o options, say func(string, ...any)) (_ *server, err error) {
	s := &server{stop: func(context.Context) error { return nil }, machine: Machine{Cores: runtime.NumCPU(), Settings: map[string]string{}}}
	at := o.databaseURL
	if at == "" {
		say("starting PostgreSQL 18")
		if at, err = s.embedded(ctx, o.dataDir); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close(ctx))
		}
	}()
	if s.url, err = url.Parse(at); err != nil || !strings.HasPrefix(s.url.Scheme, "postgres") {
		return nil, errors.New("the database URL must be of the form postgres://user@host/database")
	}
	if s.conn, err = pgx.Connect(ctx, at); err != nil {
		return nil, err
	}
	if err := s.describe(ctx); err != nil {
		return nil, err
	}
	if s.machine.Embedded && o.fill > 0 {
		say("writing %d GB and dropping them, so that the first product does not pay for new memory and files", o.fill)
		return s, s.fill(ctx, o.fill)
	}
	return s, nil
}

func (s *server) embedded(ctx context.Context, parent string) (string, error) {
	dir, err := os.MkdirTemp(parent, "posthaste-peers-")
	if err != nil {
		return "", err
	}
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) == nil && (fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC) {
		return "", errors.Join(fmt.Errorf("%s is in memory, where commits cost nothing; name another directory with --data-dir", dir), os.Remove(dir))
	}
	var info unix.Sysinfo_t
	_ = unix.Sysinfo(&info) // without it, assume the least
	buffers := min(max(uint64(info.Totalram)*uint64(info.Unit)/4, 128<<20), 8<<30)
	d, err := devpg.Start(ctx, devpg.Config{DataDir: dir, Version: "18", Ephemeral: true, Settings: map[string]string{
		"shared_buffers": fmt.Sprintf("%dMB", buffers>>20), "max_wal_size": "8GB", "min_wal_size": "8GB",
		"checkpoint_timeout": "15min", "max_connections": "200",
		"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track": "none",
	}})
	if err != nil {
		return "", err
	}
	s.stop, s.machine.Embedded = d.Stop, true
	return d.URL(), nil
}

func (s *server) describe(ctx context.Context) error {
	rows, err := s.conn.Query(ctx, "select name, current_setting(name) from pg_settings where name = any($1)", shownSettings)
	if err != nil {
		return err
	}
	var name, value string
	if _, err := pgx.ForEachRow(rows, []any{&name, &value}, func() error { s.machine.Settings[name] = value; return nil }); err != nil {
		return err
	}
	for _, name := range []string{"fsync", "synchronous_commit"} {
		if s.machine.Settings[name] == "off" {
			return fmt.Errorf("%s is off: commits are not durable; turn it on", name)
		}
	}
	var pid int
	var preloaded string
	err = s.conn.QueryRow(ctx, "select current_setting('server_version'), pg_backend_pid(), current_setting('shared_preload_libraries')").
		Scan(&s.machine.PostgresVersion, &pid, &preloaded)
	if err != nil {
		return err
	}
	s.meter = cpumeter.Server(pid)
	if strings.Contains(preloaded, "pg_stat_statements") {
		_, err := s.conn.Exec(ctx, "create extension if not exists pg_stat_statements")
		s.counts = err == nil // without it, statements are not counted
	}
	return nil
}

// fill allocates memory and log files once, as on a server that has run for a while.
func (s *server) fill(ctx context.Context, gigabytes int) error {
	for _, statement := range []string{
		"create table peers_filler (filler text)",
		"alter table peers_filler alter filler set storage plain",
		// Four rows per page.
		fmt.Sprintf("insert into peers_filler select repeat('x', 1900) from generate_series(1, %d)", gigabytes<<30/8192*4),
		"drop table peers_filler",
		"checkpoint",
	} {
		if _, err := s.conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("the server's memory cannot be used: %w", err)
		}
	}
	return nil
}

// database creates a database and returns its name and URL.
func (s *server) database(ctx context.Context) (name, at string, err error) {
	s.made++
	name = fmt.Sprintf("posthaste_peers_%d_%d", os.Getpid(), s.made)
	if _, err := s.conn.Exec(ctx, "create database "+name); err != nil {
		return "", "", fmt.Errorf("a database for each product cannot be made; use a role that may: %w", err)
	}
	u := *s.url
	u.Path = "/" + name
	return name, u.String(), nil
}

// drop removes a database and flushes the pages that it left in memory.
func (s *server) drop(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if _, err := s.conn.Exec(ctx, "drop database if exists "+name+" with (force)"); err != nil {
		return fmt.Errorf("database %s is left behind: %w", name, err)
	}
	_, err := s.conn.Exec(ctx, "checkpoint")
	return err
}

// count enables pg_stat_statements for new sessions of a database.
func (s *server) count(ctx context.Context, name string) error {
	if !s.counts {
		return nil
	}
	_, err := s.conn.Exec(ctx, "alter database "+name+" set pg_stat_statements.track = 'top'")
	return err
}

// counted returns the number of statements and transactions of a database.
func (s *server) counted(ctx context.Context, name string) (statements, transactions int64, err error) {
	err = s.conn.QueryRow(ctx, "select xact_commit + xact_rollback from pg_stat_database where datname = $1", name).Scan(&transactions)
	if err == nil && s.counts {
		err = s.conn.QueryRow(ctx, `select coalesce(sum(calls), 0)::bigint from pg_stat_statements
			where dbid = (select oid from pg_database where datname = $1)`, name).Scan(&statements)
	}
	return statements, transactions, err
}

func (s *server) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if s.conn != nil {
		_ = s.conn.Close(ctx)
	}
	return s.stop(ctx)
}
