// Package scratch creates databases with the schema for single tests. Package posthastetest is
// built on it; no driver is known here.
package scratch

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste/postgres"
)

// Make creates a database on the server of serverURL, installs the schema in it, and returns
// its URL. drop removes it, even if clients are connected.
func Make(ctx context.Context, serverURL string) (databaseURL string, drop func(ctx context.Context) error, err error) {
	u, err := url.Parse(serverURL)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return "", nil, fmt.Errorf("not a URL of PostgreSQL, such as postgres://user@host/database")
	}
	name := "posthaste_test_" + strings.ToLower(rand.Text())
	if err := run(ctx, serverURL, "create database "+name); err != nil {
		return "", nil, fmt.Errorf("creating a database: %w", err)
	}
	drop = func(ctx context.Context) error {
		return run(ctx, serverURL, "drop database if exists "+name+" with (force)")
	}
	u.Path = "/" + name
	if err := migrate(ctx, u.String()); err != nil {
		return "", nil, fmt.Errorf("installing the schema: %w", errors.Join(err, drop(context.WithoutCancel(ctx))))
	}
	return u.String(), drop, nil
}

func run(ctx context.Context, serverURL, statement string) error {
	conn, err := pgx.Connect(ctx, serverURL)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, statement)
	return err
}

func migrate(ctx context.Context, databaseURL string) error {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return postgres.Migrate(ctx, conn, postgres.MigrateOptions{})
}
