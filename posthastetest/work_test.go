//go:build unix

package posthastetest

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/postgres"
)

type parcel struct{ Weight int }

func (parcel) Kind() string { return "parcel" }

// SendDefaults has what must not keep Work from calling the handler.
func (parcel) SendDefaults() posthaste.Message {
	return posthaste.Message{Queue: "parcels", Delay: time.Hour, Timeout: time.Minute}
}

func TestWork(t *testing.T) {
	t.Parallel()
	errHeavy := errors.New("too heavy")
	for name, c := range map[string]struct {
		handler func(context.Context, posthaste.Delivery[parcel]) error
		outcome posthaste.Outcome
		err     error
		text    string
		wait    time.Duration
	}{
		"done": {func(context.Context, posthaste.Delivery[parcel]) error { return nil }, posthaste.OutcomeDone, nil, "", 0},
		"retried": {func(context.Context, posthaste.Delivery[parcel]) error {
			return posthaste.RetryAfter(errHeavy, time.Hour)
		}, posthaste.OutcomeRetried, errHeavy, "too heavy", time.Hour},
		"dead":     {func(context.Context, posthaste.Delivery[parcel]) error { return posthaste.Permanent(errHeavy) }, posthaste.OutcomeDead, errHeavy, "too heavy", 0},
		"released": {func(context.Context, posthaste.Delivery[parcel]) error { return posthaste.Snooze(time.Minute) }, posthaste.OutcomeReleased, nil, "snooze", time.Minute},
		"at once":  {func(context.Context, posthaste.Delivery[parcel]) error { return posthaste.Snooze(0) }, posthaste.OutcomeReleased, nil, "snooze", 0},
		"panic":    {func(context.Context, posthaste.Delivery[parcel]) error { panic("dropped") }, posthaste.OutcomeRetried, nil, "dropped", -1},
		"timeout": {func(ctx context.Context, _ posthaste.Delivery[parcel]) error { <-ctx.Done(); return ctx.Err() },
			posthaste.OutcomeRetried, context.DeadlineExceeded, "", -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				calls := 0
				got := Work(t, func(ctx context.Context, d posthaste.Delivery[parcel]) error {
					if calls++; d.Attempt != 1 || d.Kind != "parcel" || d.Payload.Weight != 7 {
						t.Errorf("it got %+v", d)
					}
					return c.handler(ctx, d)
				}, parcel{7})
				if calls != 1 || got.Outcome != c.outcome || c.err != nil && !errors.Is(got.Err, c.err) || c.wait >= 0 && got.Wait != c.wait ||
					(got.Err == nil) != (c.outcome == posthaste.OutcomeDone) || got.Err != nil && !strings.Contains(got.Err.Error(), c.text) {
					t.Errorf("%d calls came to %+v", calls, got)
				}
			})
		})
	}
}

func TestWorkTellsWhatWasNoted(t *testing.T) {
	t.Parallel()
	got := Work(t, func(ctx context.Context, d posthaste.Delivery[parcel]) error {
		d.Logger().Info("weighing", "weight", d.Payload.Weight)
		return errors.Join(d.Checkpoint(ctx, 41), d.Checkpoint(ctx, 42), d.Progress(ctx, 0.5, "half"), d.SetResult("scale 3"))
	}, parcel{7})
	if got.Outcome != posthaste.OutcomeDone || string(got.Checkpoint) != "42" || got.Progress != 0.5 || got.ProgressText != "half" || string(got.Result) != `"scale 3"` ||
		!strings.Contains(got.Log, "weighing") || !strings.Contains(got.Log, "weight=7") {
		t.Errorf("it came to %+v", got)
	}
}

// TestSentIn: the messages of an open transaction are told, in order, and no others.
func TestSentIn(t *testing.T) {
	t.Parallel()
	ctx, url := t.Context(), Database(t, testpg.Superuser(t))
	engine, err := postgres.Open(ctx, url)
	must(t, err)
	defer engine.Close()
	must(t, engine.CreateQueue(ctx, "parcels", posthaste.QueueOptions{}))
	_, err = engine.Send(ctx, posthaste.Message{Payload: parcel{99}})
	must(t, err)
	conn, err := pgx.Connect(ctx, url)
	must(t, err)
	defer conn.Close(context.WithoutCancel(ctx))
	db, err := sql.Open("pgx", url)
	must(t, err)
	defer db.Close()
	messages := []posthaste.Message{
		{Payload: parcel{1}},
		{Queue: "parcels", Payload: 5, Key: "k"},
		{Payload: parcel{2}, DedupeKey: "once"},
		{Payload: parcel{3}, DedupeKey: "once"},
	}

	tx, err := conn.Begin(ctx)
	must(t, err)
	if sent := SentIn[parcel](t, postgres.In(tx)); len(sent) != 0 {
		t.Errorf("before anything was sent, %v", sent)
	}
	_, err = postgres.In(tx).Send(ctx, messages...)
	must(t, err)
	inner, err := tx.Begin(ctx) // a savepoint
	must(t, err)
	_, err = postgres.In(inner).Send(ctx, posthaste.Message{Payload: parcel{4}})
	must(t, err)
	if sent := SentIn[parcel](t, postgres.In(inner)); !slices.Equal(sent, []parcel{{1}, {2}, {4}}) {
		t.Errorf("with a savepoint %v", sent)
	}
	must(t, inner.Rollback(ctx))
	if sent := SentIn[parcel](t, postgres.In(tx)); !slices.Equal(sent, []parcel{{1}, {2}}) {
		t.Errorf("after its rollback %v", sent)
	}
	if said := fails(t, func(l testing.TB) { SentIn[int](l, postgres.In(tx)) }); !strings.Contains(said, "cannot be decoded") {
		t.Errorf("a payload of another type: %s", said)
	}
	must(t, tx.Rollback(ctx))

	other, err := db.BeginTx(ctx, nil)
	must(t, err)
	_, err = postgres.InSQL(other).Send(ctx, messages[1])
	must(t, err)
	if sent := SentIn[int](t, postgres.InSQL(other)); !slices.Equal(sent, []int{5}) {
		t.Errorf("by database/sql %v", sent)
	}
	must(t, other.Rollback())
}
