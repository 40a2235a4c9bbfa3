package postgres_test

import (
	"context"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/enginetest"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/postgres"
)

var _ posthaste.Store = (*postgres.Engine)(nil)

func open(t *testing.T, opts ...postgres.Option) posthaste.Store {
	t.Helper()
	return openAt(t, testpg.New(t), opts...)
}

// openAt opens an engine on a database until the test ends.
func openAt(t *testing.T, url string, opts ...postgres.Option) *postgres.Engine {
	t.Helper()
	e, err := postgres.Open(context.Background(), url, opts...)
	must(t, err)
	t.Cleanup(e.Close)
	return e
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestEngine(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, enginetest.All(), func(t *testing.T) posthaste.Store { return open(t) })
}

// The engine works behind a pooler in transaction mode, without prepared statements and doorbell.
func TestHA6_EngineBehindPgbouncer(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, enginetest.All(), func(t *testing.T) posthaste.Store {
		return openAt(t, testpg.Bouncer(t, testpg.New(t)), postgres.WithPollingOnly())
	})
}

func TestEnginePolling(t *testing.T) {
	t.Parallel()
	testrun.Nightly(t, "behind pgbouncer the same engine polls, too, and is tested on each change")
	enginetest.Run(t, enginetest.All(), func(t *testing.T) posthaste.Store { return open(t, postgres.WithPollingOnly()) })
}
