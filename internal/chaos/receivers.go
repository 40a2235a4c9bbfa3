//go:build unix

package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/worker"
)

// concurrency of a worker, and the maximum number of messages in it, including those being
// settled. While the store accepts no outcomes, for example because its disk is full, these
// are all messages that were claimed ahead. For a relay it is the size of a batch.
const (
	concurrency = 12
	holds       = 12 * concurrency
)

// effectsTable has no key, so that duplicate effects are visible.
const effectsTable = "create table chaos_effects (token text not null, part int not null, process text not null)"

// seen is a delivery whose payload was read.
type seen struct {
	content
	event history.Event
}

// asEvent returns the event for a worker's delivery.
func asEvent(d *posthaste.RawDelivery) history.Event {
	e := history.Event{ID: d.MessageID, Attempt: d.Attempt, Alone: d.Alone}
	if d.Subscription != posthaste.DefaultSubscription {
		e.Subscription = d.Subscription
	}
	if d.Queue == Ticks { // all of its messages have the same payload
		e.Token = tickPrefix + d.Headers[posthaste.HeaderTick]
	}
	return e
}

// arrived records that a handler got a message. e has the fields that the payload lacks. It
// returns false for a damaged payload.
func arrived(r *history.Recorder, e history.Event, payload []byte) (seen, bool) {
	c, fault := parse(payload)
	if e.Token == "" {
		e.Token, e.Part = c.Token, c.Part
	}
	if fault != "" {
		e.Kind, e.Note = Damaged, fault
		r.Record(e)
		return seen{c, e}, false
	}
	e.Kind = history.Started
	r.Record(e)
	return seen{c, e}, true
}

// came records data that arrived outside in the end: a mail's text, or a relayed message.
func came(r *history.Recorder, payload []byte) {
	content, fault := parse(payload)
	e := history.Event{Kind: Effect, Token: content.Token, Part: content.Part}
	if fault != "" {
		e.Kind, e.Note = Damaged, fault
	}
	r.Record(e)
}

// left records how a handler ended.
func (s seen) left(r *history.Recorder, err error) {
	s.event.Kind, s.event.Alone = history.Handled, false
	if err != nil {
		s.event.Kind, s.event.Note = history.Failed, err.Error()
	}
	r.Record(s.event)
}

var (
	errDamaged   = errors.New("the payload is damaged")
	errOnPurpose = errors.New("failed on purpose")
)

// workerRole handles messages with the worker runtime.
func workerRole(ctx context.Context, t task, r *history.Recorder) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	engine, err := t.open(ctx, log)
	if err != nil {
		return err
	}
	defer engine.Close()
	for engine.Ready(ctx) != nil { // like the shipped program, wait while the database is unavailable
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(100 * time.Millisecond):
		}
	}
	w := worker.New(engine, worker.Config{Name: t.Name, Concurrency: concurrency, Lease: t.Lease, Logger: log, Telemetry: claims{r}})
	plain := func(_ context.Context, d posthaste.RawDelivery) error {
		s, whole := arrived(r, asEvent(&d), d.Payload)
		if !whole {
			return posthaste.Permanent(errDamaged)
		}
		time.Sleep(work(s.content, true))
		var err error
		switch {
		case dies(d.Queue, s.content, d.Attempt):
			err = posthaste.Permanent(errOnPurpose)
		case fails(s.content, d.Attempt) && !d.AtMostOnce:
			err = errOnPurpose
		}
		s.left(r, err)
		return err
	}
	for _, queue := range t.Queues {
		switch queue {
		case Effects:
			pool, err := pgxpool.New(ctx, t.URL)
			if err != nil {
				return err
			}
			defer pool.Close()
			worker.HandleRaw(w, queue, effects(pool, t.Name, r), worker.WithOwnTransaction())
		case Mails, Relayed: // for the shipped worker, and the shipped relay
		default:
			for _, s := range subscriptions(queue) {
				worker.HandleRaw(w, queue, plain, worker.WithSubscription(cmp.Or(s, posthaste.DefaultSubscription)))
			}
		}
	}
	return w.Run(ctx)
}

// claims records the at-most-once messages that a worker is handed: those that it does not
// start are lost with it.
type claims struct{ r *history.Recorder }

// Event implements [posthaste.Telemetry].
func (c claims) Event(_ context.Context, e posthaste.Event) {
	if e.Kind == posthaste.EventClaimed && e.Queue == Once {
		c.r.Record(history.Event{Kind: Claimed, Queue: e.Queue, Count: e.Count})
	}
}

// reading is a queue that a lease receiver reads, and how many messages at a time.
type reading struct {
	queue, subscription string
	most                int
}

// byLease returns what lease receivers read.
func byLease(queues []string) (all []reading) {
	for _, queue := range queues {
		switch queue {
		case Plain, Ordered, Shared:
			for _, s := range subscriptions(queue) {
				all = append(all, reading{queue, s, 5})
			}
		case Limited: // messages that it holds count
			all = append(all, reading{queue, "", 1})
		}
	}
	return all
}

// over reports whether the lease of messages received at a time is about to end: a delayed
// receiver leaves them to others.
func (t task) over(received time.Time) bool { return time.Since(received) > t.Lease-time.Second }

// effects is a handler that inserts a row in the transaction that acknowledges.
func effects(pool *pgxpool.Pool, process string, r *history.Recorder) func(context.Context, posthaste.RawDelivery) error {
	return func(ctx context.Context, d posthaste.RawDelivery) error {
		s, whole := arrived(r, asEvent(&d), d.Payload)
		if !whole {
			return posthaste.Permanent(errDamaged)
		}
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "insert into chaos_effects values ($1, $2, $3)", s.Token, s.Part, process); err != nil {
				return err
			}
			time.Sleep(work(s.content, true))
			if fails(s.content, d.Attempt) {
				return errOnPurpose
			}
			return postgres.In(tx).Ack(ctx, d.ID)
		})
		s.left(r, err)
		return err
	}
}

// httpReceiver receives and acknowledges over HTTP.
func httpReceiver(ctx context.Context, t task, r *history.Recorder) error {
	client := &http.Client{Timeout: 30 * time.Second}
	always := context.WithoutCancel(ctx) // a started request is finished
	refs := byLease(t.Queues)
	for turn := 0; ctx.Err() == nil; turn++ {
		var got struct {
			Deliveries []struct {
				ID        string              `json:"id"`
				MessageID posthaste.MessageID `json:"message_id"`
				Attempt   int                 `json:"attempt"`
				Payload   json.RawMessage     `json:"payload"`
			} `json:"deliveries"`
		}
		ref, received := refs[turn%len(refs)], time.Now()
		asked := map[string]any{"max": ref.most, "lease": t.Lease.String(), "wait": "200ms", "subscription": cmp.Or(ref.subscription, posthaste.DefaultSubscription)}
		status, body, err := callHTTP(always, client, t.Server+"/v1/queues/"+ref.queue+"/receive", asked)
		if err == nil && status == http.StatusOK {
			err = json.Unmarshal(body, &got)
		}
		if err != nil || status != http.StatusOK {
			time.Sleep(100 * time.Millisecond) // the server is unavailable
			continue
		}
		for _, d := range got.Deliveries {
			if t.over(received) {
				break
			}
			s, whole := arrived(r, history.Event{ID: d.MessageID, Attempt: d.Attempt, Subscription: ref.subscription}, d.Payload)
			if !whole {
				continue
			}
			time.Sleep(work(s.content, false))
			s.left(r, nil)
			// Repeat until there is an answer: a second acknowledgment changes nothing.
			ack := map[string]any{"deliveries": []any{map[string]any{"id": d.ID}}}
			for try := 0; try < 100; try++ {
				status, _, err := callHTTP(always, client, t.Server+"/v1/deliveries/ack", ack)
				if err == nil && (status == http.StatusOK || status == http.StatusConflict) {
					break
				}
				time.Sleep(50 * time.Millisecond)
			}
		}
	}
	return nil
}
