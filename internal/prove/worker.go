package prove

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"log/slog"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
	"github.com/posthaste-mq/posthaste/worker"
)

// work handles messages until ctx ends. A handler takes 20 to 200 ms, so that a kill finds
// messages in flight.
func work(ctx context.Context, t task, r *history.Recorder, engine posthaste.Engine, log *slog.Logger) error {
	w := worker.New(engine, worker.Config{Name: t.Name, Logger: log, Telemetry: settlements{r}})
	worker.HandleRaw(w, queue, func(_ context.Context, d posthaste.RawDelivery) error {
		var p payload
		if err := json.Unmarshal(d.Payload, &p); err != nil {
			return posthaste.Permanent(err)
		}
		e := history.Event{Kind: history.Started, Token: p.Token, Part: p.Part, ID: d.MessageID, Attempt: d.Attempt}
		r.Record(e)
		handle := func() {
			time.Sleep(20*time.Millisecond + time.Duration(hash(d.Payload)%180)*time.Millisecond)
			e.Kind = history.Handled
			r.Record(e)
			r.Sync() // before the acknowledgment
		}
		if t.Sabotage == ackFirst {
			time.AfterFunc(500*time.Millisecond, handle)
			return nil
		}
		handle()
		return nil
	})
	return w.Run(ctx)
}

func hash(data []byte) uint32 {
	h := fnv.New32a()
	_, _ = h.Write(data)
	return h.Sum32()
}

// settlements records how many acknowledgments the database confirmed.
type settlements struct{ r *history.Recorder }

// Event implements [posthaste.Telemetry].
func (s settlements) Event(_ context.Context, e posthaste.Event) {
	if e.Kind == posthaste.EventSettled && e.Outcome == posthaste.OutcomeDone {
		s.r.Record(history.Event{Kind: Settled, Count: max(1, e.Count)})
	}
}
