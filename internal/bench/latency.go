package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/worker"
)

const (
	// latencyWarming is how many messages go before those that count.
	latencyWarming = 20
	// samplesWanted is from how many samples on a 99th percentile is printed
	// as one: at least two lie beyond it.
	samplesWanted = 200
)

// stamped is a message that says when it was sent.
type stamped struct {
	N    int           `json:"n"` // counts from 1; not above 0: not measured
	Sent time.Duration `json:"sent"`
	Text string        `json:"text"`
}

// latency measures the way of single messages between two processes.
func latency(ctx context.Context, r *run) (err error) {
	at, err := r.home(ctx, "latency")
	if err != nil {
		return err
	}
	engine, err := at.open(ctx, r.o.Log)
	if err != nil {
		return err
	}
	defer engine.Close()
	if err := engine.CreateQueue(ctx, "latency", posthaste.QueueOptions{}); err != nil {
		return err
	}
	if r.o.OpenSender {
		release, err := openSender(ctx, at.URL)
		if err != nil {
			return err
		}
		defer release()
	}
	first := order{home: at, Queues: []string{"latency"}, Rate: r.o.Rate, During: r.part(1)}
	receiver, err := startChild(ctx, "worker", first)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, receiver.end()) }()
	r.begin()
	r.phase(fmt.Sprintf("sending %g a second", r.o.Rate))
	own := cost{meter: r.meter()}
	end := own.span()
	begun := time.Now()
	sender, err := startChild(ctx, "sender", first)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sender.end()) }()
	sent, err := sender.hear()
	if err != nil {
		return err
	}
	took := time.Since(begun)
	if err := receiver.order.Encode(order{Expect: sent.Sent, Patience: r.o.drain}); err != nil {
		return fmt.Errorf("the bench's worker does not listen: %w", err)
	}
	got, err := receiver.hear()
	if err != nil {
		return err
	}
	end(int64(sent.Sent))
	own.client = sent.CPU + got.CPU
	r.latencyResult(sent.Sent, got, took, &own)
	return nil
}

func (r *run) latencyResult(sent int, got report, took time.Duration, own *cost) {
	slices.Sort(got.Samples)
	at := func(q float64) float64 { return *known(percentile(got.Samples, q).Seconds() * 1000) }
	res := r.result
	res.LatencyResult = &LatencyResult{P50: at(0.5), P95: at(0.95), P99: at(0.99), Max: at(1),
		Rate: r.o.Rate, OpenSender: r.o.OpenSender, Duplicates: got.Again}
	res.Messages = int64(len(got.Samples))
	res.PerSecond = known(rate(res.Messages, took))
	res.ServerCPU, res.ClientCPU = own.serverPerMessage(), own.clientPerMessage()
	switch n := len(got.Samples); {
	case n < sent:
		r.invalid("%d of %d messages had not arrived %s after the last was sent", sent-n, sent, r.o.drain)
	case n < samplesWanted:
		r.invalid("%d samples are too few for a 99th percentile: %d are wanted, which takes a longer duration or a higher rate", n, samplesWanted)
	}
}

// percentile of sorted samples by nearest rank; 0 of none.
func percentile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// openSender sends to the queue in a transaction that stays open.
func openSender(ctx context.Context, url string) (release func(), err error) {
	conn, err := postgres.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	release = func() { _ = conn.Close(context.WithoutCancel(ctx)) }
	if _, err = conn.Exec(ctx, "begin"); err == nil {
		_, err = conn.Exec(ctx, `select posthaste.send('latency', '{"n": 0}')`)
	}
	if err != nil {
		release()
		return nil, fmt.Errorf("the other sender's transaction cannot be opened: %w", err)
	}
	return release, nil
}

// latencySender sends at random times, each message from its own goroutine, so
// that a slow call delays none of the others.
func latencySender(ctx context.Context, o *orders) error {
	engine, err := o.first.open(ctx, slog.Default())
	if err != nil {
		return err
	}
	defer engine.Close()
	client := posthaste.NewClient(engine)
	text := strings.Repeat("x", payloadBytes-len(`{"n":10000,"sent":1000000000000000,"text":""}`))
	o.tell(report{Ready: true})

	gap := float64(time.Second) / o.first.Rate
	count := max(1, int(o.first.During.Seconds()*o.first.Rate)-latencyWarming)
	cpu := ownCPU()
	failed := make(chan error, 1)
	var wait sync.WaitGroup
	next := time.Now()
	for n := 1 - latencyWarming; n <= count; n++ {
		next = next.Add(time.Duration(gap * 2 * rand.Float64()))
		select {
		case <-time.After(time.Until(next)):
		case <-ctx.Done():
			return ctx.Err()
		}
		wait.Go(func() {
			message := stamped{N: n, Text: text, Sent: monotonic()}
			if _, err := client.Send(ctx, posthaste.Message{Queue: o.first.Queues[0], Payload: message}); err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	wait.Wait()
	select {
	case err := <-failed:
		return fmt.Errorf("sending failed: %w", err)
	default:
	}
	o.tell(report{Sent: count, CPU: ownCPU() - cpu})
	o.stay()
	return nil
}

// latencyWorker handles what arrives and notes how long it was on its way.
func latencyWorker(ctx context.Context, o *orders) error {
	engine, err := o.first.open(ctx, slog.Default())
	if err != nil {
		return err
	}
	defer engine.Close()
	var mu sync.Mutex
	seen := map[int]time.Duration{}
	again := int64(0)
	arrived := make(chan struct{}, 1)
	w := worker.New(engine, worker.Config{Logger: quiet(slog.Default())})
	worker.Handle(w, o.first.Queues[0], func(_ context.Context, d posthaste.Delivery[stamped]) error {
		way := monotonic() - d.Payload.Sent
		if d.Payload.N <= 0 {
			return nil
		}
		mu.Lock()
		if _, twice := seen[d.Payload.N]; twice {
			again++
		} else {
			seen[d.Payload.N] = way
		}
		mu.Unlock()
		select {
		case arrived <- struct{}{}:
		default:
		}
		return nil
	})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended, err := start(ctx, w)
	if err != nil {
		return err
	}
	cpu := ownCPU()
	o.tell(report{Ready: true})
	expected, ok := <-o.next
	if !ok {
		return ctx.Err()
	}
	patience := time.After(expected.Patience)
	for waiting := true; waiting; {
		mu.Lock()
		waiting = len(seen) < expected.Expect
		mu.Unlock()
		if !waiting {
			break
		}
		select {
		case <-arrived:
		case <-patience:
			waiting = false
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	used := ownCPU() - cpu
	cancel()
	err = <-ended
	r := report{CPU: used, Again: again}
	for _, way := range seen {
		r.Samples = append(r.Samples, way)
	}
	o.tell(r)
	o.stay()
	return err
}
