package prove

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
	"github.com/posthaste-mq/posthaste/postgres"
)

// lines is the number of concurrent sequences of sends of a sender.
const lines = 4

// sendTimeout bounds one send. A send that takes longer has an unknown outcome.
const sendTimeout = time.Minute

// send sends until ctx ends: two thirds with a client that gathers messages of concurrent
// callers, and one third in transactions of its own, some of which it rolls back.
func send(ctx context.Context, t task, r *history.Recorder, engine *postgres.Engine) error {
	pool, err := pgxpool.New(ctx, t.URL)
	if err != nil {
		return err
	}
	defer pool.Close()
	client := posthaste.NewClient(engine)
	var all sync.WaitGroup
	for line := range lines {
		all.Go(func() {
			l := senderLine{r: r, name: fmt.Sprintf("%s/%d", t.Name, line), rate: t.Rate / lines,
				random: rand.New(rand.NewPCG(t.Seed, uint64(line)))}
			for ctx.Err() == nil {
				l.next(ctx, t.Sabotage == reportFirst, client, pool)
			}
		})
	}
	all.Wait()
	return nil
}

// senderLine is one sequence of sends.
type senderLine struct {
	r      *history.Recorder
	name   string
	rate   float64 // messages per second
	random *rand.Rand
	sent   int
}

// next sends one to five messages, records the answer and waits according to the rate.
func (l *senderLine) next(ctx context.Context, early bool, client *posthaste.Client, pool *pgxpool.Pool) {
	l.sent++
	token, n := fmt.Sprintf("%s/%d", l.name, l.sent), 1
	if l.random.IntN(3) == 0 {
		n += l.random.IntN(5)
	}
	own, rollBack := l.random.IntN(3) == 0, l.random.IntN(10) == 0
	messages := make([]posthaste.Message, n)
	for i := range messages {
		messages[i] = posthaste.Message{Queue: queue, Payload: payload{token, i}}
	}
	l.record(history.Event{Kind: Intent, Token: token, Count: n})
	if early {
		l.record(history.Event{Kind: history.Sent, Token: token, Count: n})
	}
	// A send that has begun is finished, so that its answer is recorded.
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendTimeout)
	defer cancel()
	var answer history.Event
	if own {
		answer = inTransaction(limited, pool, messages, rollBack && !early)
	} else {
		answer = answerOf(posthaste.IDs(client.Send(limited, messages...)))
	}
	answer.Token, answer.Count = token, n
	if !early {
		l.record(answer)
	}
	pause := time.Duration(min(l.random.ExpFloat64()*float64(n)/l.rate, 5) * float64(time.Second))
	if answer.Kind != history.Sent && answer.Kind != RolledBack {
		pause = max(pause, 50*time.Millisecond) // the database is away
	}
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}

func (l *senderLine) record(e history.Event) {
	l.r.Record(e)
	l.r.Sync()
}

// answerOf returns the event for the result of a send.
func answerOf(ids []posthaste.MessageID, err error) history.Event {
	switch {
	case err == nil:
		return history.Event{Kind: history.Sent, IDs: ids}
	case posthaste.CodeOf(err) == posthaste.CodeOutcomeUnknown:
		return history.Event{Kind: Unknown, Note: err.Error()}
	default:
		return history.Event{Kind: Refused, Note: err.Error()}
	}
}

// inTransaction sends in a transaction of its own.
func inTransaction(ctx context.Context, pool *pgxpool.Pool, messages []posthaste.Message, rollBack bool) history.Event {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return history.Event{Kind: Refused, Note: err.Error()}
	}
	defer func() { _ = tx.Rollback(ctx) }()
	ids, err := posthaste.IDs(postgres.In(tx).Send(ctx, messages...))
	switch {
	case err != nil: // so it is not committed
		return history.Event{Kind: Refused, Note: err.Error()}
	case rollBack:
		return history.Event{Kind: RolledBack}
	}
	err = tx.Commit(ctx)
	switch {
	case err == nil:
		return history.Event{Kind: history.Sent, IDs: ids}
	case errors.Is(err, pgx.ErrTxCommitRollback):
		return history.Event{Kind: Refused, Note: err.Error()}
	default: // the commit may have happened
		return history.Event{Kind: Unknown, Note: err.Error()}
	}
}
