package bench

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	// latencyWarming is the number of messages before those that are measured.
	latencyWarming = 20
	// samplesWanted is the least number of samples for a valid 99th percentile, so that at
	// least two are beyond it.
	samplesWanted = 200
)

// stamped is a message with the time at which it was sent.
type stamped struct {
	N    int           `json:"n"` // counts from 1; 0 and below are not measured
	Sent time.Duration `json:"sent"`
	Text string        `json:"text"`
}

// latency measures how long single messages take between two processes.
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
		return fmt.Errorf("the bench's worker cannot be reached: %w", err)
	}
	got, err := receiver.hear()
	if err != nil {
		return err
	}
	end(int64(sent.Sent))
	own.client = sent.CPU + got.CPU
	latencyResult(r, sent.Sent, got, took, &own)
	return nil
}

func latencyResult(r *run, sent int, got report, took time.Duration, own *cost) {
	slices.Sort(got.Samples)
	at := func(q float64) float64 { return *known(percentile(got.Samples, q).Seconds() * 1000) }
	res := r.result
	res.LatencyResult = &LatencyResult{P50: at(0.5), P95: at(0.95), P99: at(0.99), Max: at(1),
		Rate: r.o.Rate, OpenSender: r.o.OpenSender, Duplicates: got.Again}
	res.Messages = int64(len(got.Samples))
	res.PerSecond = known(rate(res.Messages, took))
	own.into(res)
	switch n := len(got.Samples); {
	case n < sent:
		r.invalid("%d of %d messages had not arrived %s after the last one was sent", sent-n, sent, r.o.drain)
	case n < samplesWanted:
		r.invalid("%d samples are too few for a 99th percentile, which needs %d: set a longer duration or a higher rate", n, samplesWanted)
	}
}

// openSender sends to the queue in a transaction that stays open until release.
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

// latencySender sends at random times, each message from its own goroutine, so that a slow
// call does not delay the others.
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

// arrivals are the messages that a worker has handled.
type arrivals struct {
	mu    sync.Mutex
	took  map[int]time.Duration // by number, from the send to the handler's start
	again int64                 // redelivered messages
	some  chan struct{}         // receives after each message
}

func (a *arrivals) handle(_ context.Context, d posthaste.Delivery[stamped]) error {
	took := monotonic() - d.Payload.Sent
	if d.Payload.N <= 0 {
		return nil
	}
	a.mu.Lock()
	if _, twice := a.took[d.Payload.N]; twice {
		a.again++
	} else {
		a.took[d.Payload.N] = took
	}
	a.mu.Unlock()
	select {
	case a.some <- struct{}{}:
	default:
	}
	return nil
}

// await waits until n messages have arrived, or for the patience.
func (a *arrivals) await(ctx context.Context, n int, patience time.Duration) error {
	over := time.After(patience)
	for {
		a.mu.Lock()
		waiting := len(a.took) < n
		a.mu.Unlock()
		if !waiting {
			return nil
		}
		select {
		case <-a.some:
		case <-over:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// latencyWorker handles messages and reports how long each was on its way.
func latencyWorker(ctx context.Context, o *orders) error {
	engine, err := o.first.open(ctx, slog.Default())
	if err != nil {
		return err
	}
	defer engine.Close()
	got := arrivals{took: map[int]time.Duration{}, some: make(chan struct{}, 1)}
	w := worker.New(engine, worker.Config{Logger: quiet(slog.Default())})
	worker.Handle(w, o.first.Queues[0], got.handle)
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
	if err := got.await(ctx, expected.Expect, expected.Patience); err != nil {
		return err
	}
	used := ownCPU() - cpu
	cancel()
	err = <-ended
	r := report{CPU: used, Again: got.again}
	for _, took := range got.took {
		r.Samples = append(r.Samples, took)
	}
	o.tell(r)
	o.stay()
	return err
}
