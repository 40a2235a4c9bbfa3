package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	claimStream = "CLAIMS"
	claimPrefix = "c."
	claimBatch  = 20_000
)

// measureClaims returns the median of the ratios of the trial's worker to the raw client, on
// the trial's servers. Both take and acknowledge as many messages, by turns.
func measureClaims(ctx context.Context, url string, l layout, rounds int, tell func(string, ...any)) (ratios []float64, median float64, err error) {
	nc, err := connect(url)
	if err != nil {
		return nil, 0, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(2000))
	if err != nil {
		return nil, 0, err
	}
	stream, err := js.CreateStream(ctx, l.stream(jetstream.StreamConfig{Name: claimStream}))
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = js.DeleteStream(context.WithoutCancel(ctx), claimStream) }()
	consumer, err := l.consumers(ctx, stream, time.Minute, 10_000)
	if err != nil {
		return nil, 0, err
	}
	raw := func() (time.Duration, error) { return rawClaims(ctx, nc, consumer) }
	ours := func() (time.Duration, error) { return workerClaims(ctx, url, nc, claimStream) }
	for round := range rounds + 1 {
		order := []func() (time.Duration, error){raw, ours}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		var took [2]time.Duration
		for i, f := range order {
			if err := fill(ctx, js, l, claimBatch); err != nil {
				return nil, 0, err
			}
			if took[(i+round)%2], err = f(); err != nil {
				return nil, 0, err
			}
		}
		if round == 0 { // warm-up
			continue
		}
		ratio := took[0].Seconds() / took[1].Seconds()
		tell("claims, round %d: %.2f of the raw client", round, ratio)
		ratios = append(ratios, ratio)
	}
	sorted := slices.Sorted(slices.Values(ratios))
	return ratios, (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2, nil
}

// fill sends messages; each tenth has the last subject.
func fill(ctx context.Context, js jetstream.JetStream, l layout, count int) error {
	for i := range count {
		subject := l.filters[0]
		if i%10 == 0 {
			subject = l.filters[len(l.filters)-1]
		}
		if _, err := js.PublishMsgAsync(message(subject, uint64(i+1))); err != nil {
			return err
		}
	}
	select {
	case <-js.PublishAsyncComplete():
		return nil
	case <-time.After(time.Minute):
		return errors.New("the messages for the claims were not confirmed within a minute")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// rawClaims fetches 100 at a time and pipelines double acknowledgments.
func rawClaims(ctx context.Context, nc *nats.Conn, consumer jetstream.Consumer) (time.Duration, error) {
	inbox, all := nats.NewInbox(), make(chan bool)
	var kept atomic.Int64
	subscription, err := nc.Subscribe(inbox, func(m *nats.Msg) {
		if m.Header.Get("Status") == "" && kept.Add(1) == claimBatch {
			close(all)
		}
	})
	if err != nil {
		return 0, err
	}
	defer func() { _ = subscription.Unsubscribe() }()
	start := time.Now()
	for taken := 0; taken < claimBatch; {
		batch, err := consumer.Fetch(100, jetstream.FetchMaxWait(3*time.Second))
		if err != nil {
			return 0, err
		}
		for m := range batch.Messages() {
			taken++
			if err := nc.PublishMsg(&nats.Msg{Subject: m.Reply(), Reply: inbox, Data: []byte("+ACK")}); err != nil {
				return 0, err
			}
		}
		if batch.Error() != nil || ctx.Err() != nil {
			return 0, fmt.Errorf("a fetch failed after %d messages: %w", taken, errors.Join(batch.Error(), ctx.Err()))
		}
	}
	return waitFor(ctx, all, start)
}

// workerClaims is the same with a worker of the trial in this process.
func workerClaims(ctx context.Context, url string, nc *nats.Conn, stream string) (time.Duration, error) {
	w, err := newWorker(settings{URL: url, Stream: stream, Consumer: consumerName, AckWait: time.Minute},
		nc, bufio.NewWriter(io.Discard))
	if err != nil {
		return 0, err
	}
	all := make(chan bool)
	var kept atomic.Int64
	w.onKept = func() {
		if kept.Add(1) == claimBatch {
			close(all)
		}
	}
	working, stop := context.WithCancel(ctx)
	ended := make(chan bool)
	start := time.Now()
	go func() { defer close(ended); w.work(working) }()
	took, err := waitFor(ctx, all, start)
	stop()
	<-ended
	return took, err
}

func waitFor(ctx context.Context, all chan bool, start time.Time) (time.Duration, error) {
	select {
	case <-all:
		return time.Since(start), nil
	case <-time.After(2 * time.Minute):
		return 0, errors.New("the acknowledgments were not confirmed within two minutes")
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
