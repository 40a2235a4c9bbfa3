//go:build unix

package acceptance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
	"github.com/posthaste-mq/posthaste/worker"
)

// insisterRole sends until it is told to stop. Each third message has a dedupe key, and is sent again
// until it is answered. Of the others it records what became of the only send.
func insisterRole(ctx context.Context, t task, ready func()) error {
	engine, record, err := tools(ctx, t)
	if err != nil {
		return err
	}
	defer engine.Close()
	ready()
	var group sync.WaitGroup
	for sender := range t.Concurrency {
		group.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				insist(ctx, engine, record, t.Queue, fmt.Sprint(t.Name, "-", sender, "-", n), n%3 == 0)
				rest(ctx, 10*time.Millisecond)
			}
		})
	}
	group.Wait()
	return nil
}

// sendAnswer bounds how long a sender waits for an answer.
const sendAnswer = 8 * time.Second

// insist sends one message, and records what the sender knows of it.
func insist(ctx context.Context, engine posthaste.Store, record *history.Recorder, queue, token string, keyed bool) {
	m := posthaste.Message{Queue: queue, Payload: token}
	if keyed {
		m.DedupeKey, m.DedupeWindow = token, time.Hour
	}
	for tried := false; ; {
		once, cancel := context.WithTimeout(context.WithoutCancel(ctx), sendAnswer)
		begun := history.Now()
		ids, err := posthaste.IDs(posthaste.NewClient(engine).Send(once, m))
		cancel()
		e := history.Event{Token: token, Took: history.Now() - begun}
		switch {
		case err == nil:
			e.Kind, e.ID = history.Sent, ids[0]
		case posthaste.CodeOf(err) == posthaste.CodeUnavailable:
			e.Kind = refused
		default:
			e.Kind = unknown
		}
		if err != nil {
			e.Note = fmt.Sprintf("%s: %v", posthaste.CodeOf(err), err)
		}
		tried = tried || e.Kind == unknown
		if tried && e.Kind == refused {
			e.Kind = unknown // an earlier attempt may have stored it
		}
		record.Record(e)
		if err == nil || !keyed || ctx.Err() != nil {
			return
		}
		rest(ctx, 50*time.Millisecond)
	}
}

// witnessRole handles messages, and records their deliveries and what becomes of their settlements. Of
// each t.Fails messages one fails in its first attempt; if it is below 0 all fail in each.
func witnessRole(ctx context.Context, t task, ready func()) error {
	engine, record, err := tapped(ctx, t)
	if err != nil {
		return err
	}
	defer engine.Close()
	w := worker.New(&witness{Store: engine, record: record}, worker.Config{Name: t.Name, Concurrency: t.Concurrency, Lease: t.Lease, Telemetry: troubles{record},
		Middleware: []func(posthaste.Handler) posthaste.Handler{tokens(record)}})
	worker.HandleRaw(w, t.Queue, func(ctx context.Context, d posthaste.RawDelivery) error {
		works(t.Work)
		if t.Fails < 0 {
			return errors.New("it fails always")
		}
		if t.Fails > 0 && d.Attempt == 1 && int(d.MessageID>>12)%t.Fails == 0 {
			return errors.New("it fails once")
		}
		return nil
	})
	go func() {
		<-w.Started()
		ready()
	}()
	return w.Run(ctx)
}

// tokens records the runs of messages whose payload is their token.
func tokens(r *history.Recorder) func(posthaste.Handler) posthaste.Handler {
	return func(h posthaste.Handler) posthaste.Handler {
		return func(ctx context.Context, d posthaste.RawDelivery) error {
			e := history.Event{Kind: history.Started, ID: d.MessageID, Attempt: d.Attempt, Alone: d.Alone, Token: token(d), Key: d.Key}
			r.Record(e)
			err := h(ctx, d)
			e.Kind = history.Handled
			if err != nil {
				e.Kind, e.Note = history.Failed, err.Error()
			}
			r.Record(e)
			return err
		}
	}
}

// token returns the payload without its quotes.
func token(d posthaste.RawDelivery) string {
	if n := len(d.Payload); n > 2 && d.Payload[0] == '"' {
		return string(d.Payload[1 : n-1])
	}
	return ""
}

// witness is a store that records what becomes of settlements.
type witness struct {
	posthaste.Store
	record *history.Recorder
	held   sync.Map // of deliveries by their ids
}

// Claim implements [posthaste.Engine].
func (w *witness) Claim(ctx context.Context, req posthaste.ClaimRequest) (posthaste.ClaimReply, error) {
	reply, err := w.Store.Claim(ctx, req)
	for _, d := range reply.Deliveries {
		w.held.Store(d.ID, d)
	}
	return reply, err
}

// Settle implements [posthaste.Engine]. A settlement that is confirmed counts, even if another one of
// the same call is not.
func (w *witness) Settle(ctx context.Context, settlements []posthaste.Settlement) ([]posthaste.SettleResult, error) {
	results, err := w.Store.Settle(ctx, settlements)
	for i, s := range settlements {
		known, is := w.held.Load(s.Delivery)
		if !is {
			continue
		}
		d, is := known.(posthaste.RawDelivery)
		if !is {
			continue
		}
		e := history.Event{Kind: late, ID: d.MessageID, Attempt: d.Attempt, Note: string(s.Outcome), Token: token(d)}
		if i < len(results) && results[i].Settled {
			e.Kind, e.Note = confirmed, string(results[i].Outcome)
			w.held.Delete(s.Delivery)
		} else if err != nil {
			e.Note += ": " + err.Error()
		}
		w.record.Record(e)
	}
	return results, err
}
