//go:build unix

package postgres_test

import (
	"context"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/postgres"
)

// Without a named operator the session's user is recorded, even if it has set another role.
func TestWhoeverIsNotNamedIsTheSessionsUser(t *testing.T) {
	a := newAdminTest(t, posthaste.QueueOptions{Fair: true})
	config := a.pool.Config()
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "set role posthaste_admin")
		return err
	}
	pool, err := pgxpool.NewWithConfig(a.ctx, config)
	a.check(err)
	t.Cleanup(pool.Close)
	e := postgres.New(pool)
	a.check(e.CreateQueue(a.ctx, "r", posthaste.QueueOptions{}))
	_, err = e.PutSchedule(a.ctx, posthaste.Schedule{Name: "s", Spec: "@daily", Message: posthaste.Message{Queue: "r"}})
	a.check(err)
	a.check(e.DropSchedule(a.ctx, "s"))
	a.check(e.DropQueue(a.ctx, "r", posthaste.DropOptions{}))
	a.check(e.UpdateQueue(a.ctx, "q", posthaste.QueueUpdate{Options: posthaste.QueueOptions{Limits: posthaste.QueueLimits{Concurrency: 5}}}))
	a.check(e.Pause(a.ctx, posthaste.OfQueue("q"), posthaste.PauseOptions{}))
	a.check(e.Resume(a.ctx, posthaste.OfQueue("q")))
	a.check(e.Pause(a.ctx, posthaste.OfKey{Queue: "q", Key: "k"}, posthaste.PauseOptions{}))
	a.check(e.Resume(a.ctx, posthaste.OfKey{Queue: "q", Key: "k"}))
	_, err = e.CreateToken(a.ctx, posthaste.Token{Name: "ops", Scopes: []posthaste.Scope{posthaste.ScopeAdmin}})
	a.check(err)
	a.check(e.RevokeToken(a.ctx, "ops"))
	rows, err := a.pool.Query(a.ctx, `select what || ' by ' || case when by = session_user then 'the session' else by end
		from (select action as what, by, id from posthaste.actions
			union all select 'added', created_by, 1000 from posthaste.issued_tokens
			union all select 'dropped', dropped_by, 1001 from posthaste.issued_tokens) x order by id`)
	a.check(err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	a.check(err)
	var want []string
	for _, what := range []string{"create", "create", "schedule_put", "schedule_drop", "drop", "update", "pause", "resume", "pause_key", "resume_key", "token_add", "token_drop", "added", "dropped"} {
		want = append(want, what+" by the session")
	}
	if !slices.Equal(got, want) {
		t.Errorf("recorded %q, want %q", got, want)
	}
}
