//go:build unix

package acceptance

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/history"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/worker"
)

// senderRole sends single messages from several goroutines and kills itself as soon as t.Count
// ids are recorded, while the other goroutines continue.
func senderRole(ctx context.Context, t task, ready func()) error {
	engine, record, err := tools(ctx, t)
	if err != nil {
		return err
	}
	client := posthaste.NewClient(engine)
	ready()
	var number, returned atomic.Int64
	failed := make(chan error, t.Concurrency)
	for range t.Concurrency {
		go func() {
			for {
				n := number.Add(1)
				m := posthaste.Message{Queue: t.Queue, Payload: n, Priority: int(n % 4)}
				if t.Ordered {
					m.Key, m.Priority = fmt.Sprint("key ", n%17), 0
				}
				ids, err := posthaste.IDs(client.Send(ctx, m))
				if err != nil {
					failed <- err
					return
				}
				n = returned.Add(1)
				if n > int64(t.Count) {
					select {} // the guarantee is about the first ones
				}
				record.Record(history.Event{Kind: history.Sent, ID: ids[0]})
				if n == int64(t.Count) {
					for c, _ := record.Count(history.Sent); c < t.Count; c, _ = record.Count(history.Sent) {
						runtime.Gosched() // those that returned are recorded within microseconds
					}
					dieNow()
				}
			}
		}()
	}
	return <-failed
}

// trouble is an error that a process met. Its note begins with the error's code and ": ".
const trouble history.Kind = "trouble"

// troubles records a worker's errors.
type troubles struct{ *history.Recorder }

func (r troubles) Event(_ context.Context, e posthaste.Event) {
	if e.Kind == posthaste.EventError {
		r.Record(history.Event{Kind: trouble, Note: fmt.Sprintf("%s: %s: %v", posthaste.CodeOf(e.Err), e.Task, e.Err)})
	}
}

// pesterRole sends until it is told to stop, and repeats failed sends.
func pesterRole(ctx context.Context, t task, ready func()) error {
	engine, record, err := tools(ctx, t)
	if err != nil {
		return err
	}
	defer engine.Close()
	client := posthaste.NewClient(engine)
	ready()
	var group sync.WaitGroup
	for range t.Concurrency {
		group.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				m := posthaste.Message{Queue: t.Queue, Payload: "again"}
				if t.Ordered {
					m.Key = fmt.Sprint("key ", n%17)
				}
				ids, err := posthaste.IDs(client.Send(context.WithoutCancel(ctx), m))
				if err == nil {
					record.Record(history.Event{Kind: history.Sent, ID: ids[0]})
				} else {
					record.Record(history.Event{Kind: trouble, Note: fmt.Sprintf("%s: %v", posthaste.CodeOf(err), err)})
				}
				rest(ctx, 10*time.Millisecond)
			}
		})
	}
	group.Wait()
	return nil
}

// workerRole handles messages until it is told to stop.
func workerRole(ctx context.Context, t task, ready func()) error {
	return work(ctx, t, ready, func(ctx context.Context, d posthaste.RawDelivery) error {
		if t.Work > 0 {
			select {
			case <-time.After(t.Work):
			case <-ctx.Done():
			}
		}
		return nil
	})
}

// counterRole handles messages without recording them.
func counterRole(ctx context.Context, t task, ready func()) error {
	url := t.URL
	if !isRedis(url) {
		url += "&application_name=" + t.Name
	}
	engine, err := openStore(ctx, url)
	if err != nil {
		return err
	}
	defer engine.Close()
	w := worker.New(engine, worker.Config{Name: t.Name, Concurrency: t.Concurrency, Lease: t.Lease})
	worker.HandleRaw(w, t.Queue, nothing)
	ready()
	return w.Run(ctx)
}

// suicideRole handles messages, and those of the kind "poison" kill it.
func suicideRole(ctx context.Context, t task, ready func()) error {
	return work(ctx, t, ready, func(_ context.Context, d posthaste.RawDelivery) error {
		if d.Kind == "poison" {
			dieNow()
		}
		return nil
	})
}

// stepsRole does ten steps with each message, and stores a checkpoint after each. In the first
// attempt it kills itself before step t.Count. The result is the step with which the attempt began.
func stepsRole(ctx context.Context, t task, ready func()) error {
	return work(ctx, t, ready, func(ctx context.Context, d posthaste.RawDelivery) error {
		begun, _, err := posthaste.Resume[int](d)
		if err != nil {
			return err
		}
		for step := begun; step < 10; step++ {
			if step == t.Count && d.Attempt == 1 {
				dieNow()
			}
			if err := d.Checkpoint(ctx, step+1); err != nil {
				return err
			}
		}
		return d.SetResult(begun)
	})
}

func work(ctx context.Context, t task, ready func(), h posthaste.Handler) error {
	engine, record, err := tools(ctx, t)
	if err != nil {
		return err
	}
	defer engine.Close()
	w := worker.New(engine, worker.Config{Name: t.Name, Concurrency: t.Concurrency, Lease: t.Lease, Telemetry: troubles{record},
		Middleware: []func(posthaste.Handler) posthaste.Handler{recording(record)}})
	worker.HandleRaw(w, t.Queue, h)
	return runReady(ctx, w, ready)
}

// runReady runs a worker, and calls ready once it has started.
func runReady(ctx context.Context, w *worker.Worker, ready func()) error {
	go func() {
		<-w.Started()
		ready()
	}()
	return w.Run(ctx)
}

// migrateRole installs the schema t.Count times from as many connections concurrently, when it
// gets SIGTERM.
func migrateRole(ctx context.Context, t task, ready func()) error {
	var all sync.WaitGroup
	errs := make(chan error, t.Count)
	ready()
	<-ctx.Done() // the signal is the start for all processes
	for range t.Count {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			conn, err := postgres.Connect(ctx, t.URL)
			if err == nil {
				err = postgres.Migrate(ctx, conn, postgres.MigrateOptions{})
				_ = conn.Close(ctx)
			}
			errs <- err
		})
	}
	all.Wait()
	for range t.Count {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}
