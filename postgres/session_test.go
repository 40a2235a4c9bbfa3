package postgres_test

import (
	"bytes"
	"context"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste/internal/faultproxy"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/postgres"
)

// A connection that stops responding after its login, before its settings are set, is closed, and
// its place in the pool is free again.
func TestSettingsThatHangKeepNoPlace(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(testpg.New(t))
	if err != nil {
		t.Fatal(err)
	}
	var hung atomic.Int32
	release := make(chan struct{})
	proxy, err := faultproxy.New(u.Host, func(sent []byte) bool {
		if bytes.Contains(sent, []byte("set_config")) && hung.Add(1) <= 2 {
			<-release
		}
		return false
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	t.Cleanup(func() { close(release) })
	u.Host = proxy.Address()
	e := openAt(t, u.String()+"&connect_timeout=1", postgres.WithLazyConnect(), postgres.WithPoolSize(2))
	testrun.Until(t, time.Minute, "the pool has places again", func() bool { return e.Ready(t.Context()) == nil })
	if n := hung.Load(); n < 3 {
		t.Errorf("%d connections got their settings or hung, which tests nothing", n)
	}
}

// Behind a pooler in transaction mode programs share sessions: with polling all settings of a
// session stay unchanged, and otherwise its timeouts.
func TestPoolersSessionsKeepTheirSettings(t *testing.T) {
	t.Parallel()
	where := testpg.New(t)
	admin, err := pgx.Connect(t.Context(), where)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.Background())
	database := pgx.Identifier{admin.Config().Database}.Sanitize()
	for _, setting := range []string{"statement_timeout = '77s'", "bytea_output = escape"} {
		if _, err := admin.Exec(t.Context(), "alter database "+database+" set "+setting); err != nil {
			t.Fatal(err)
		}
	}
	has := func(url string, options ...postgres.Option) (timeout, output string) {
		t.Helper()
		conn, err := postgres.Connect(t.Context(), url, options...)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		if err := conn.QueryRow(t.Context(), "select current_setting('statement_timeout'), current_setting('bytea_output')", pgx.QueryExecModeExec).Scan(&timeout, &output); err != nil {
			t.Fatal(err)
		}
		return timeout, output
	}
	if timeout, output := has(where); timeout != "0" || output != "hex" {
		t.Errorf("directly it has %s and %s", timeout, output)
	}
	pooled := testpg.Bouncer(t, where)
	if timeout, output := has(pooled, postgres.WithPollingOnly()); timeout != "77s" && timeout != "77000ms" || output != "escape" {
		t.Errorf("by a pooler, with polling, it has %s and %s", timeout, output)
	}
	if timeout, _ := has(pooled); timeout == "0" {
		t.Errorf("by a pooler it has %s", timeout)
	}
}
