package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Names in the servers. All filters are literal, apart from those of subjects without a consumer.
const (
	streamName   = "TRIAL"
	consumerName = "workers"
	prefix       = "t."
	queue        = prefix + "q.1"
	records      = prefix + "i."
	schedules    = prefix + "s."
	workerCount  = 4
)

type trial struct {
	options
	dir     string
	cluster cluster
	js      jetstream.JetStream
	sender  *sender
	workers []*exec.Cmd
	begun   time.Time
	layout  layout
}

func (t *trial) tell(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%7.1f  %s\n", time.Since(t.begun).Seconds(), fmt.Sprintf(format, args...))
}

// try runs the whole trial.
func try(ctx context.Context, o options) (*report, error) {
	dir, err := os.MkdirTemp(o.dir, "jetstream-trial")
	if err != nil {
		return nil, err
	}
	t := &trial{options: o, dir: dir, begun: time.Now(), layout: layoutOf(prefix, o.retention == "interest")}
	if t.cluster, err = newCluster(dir); err != nil {
		return nil, err
	}
	defer t.cluster.stop()
	nc, err := connect(t.cluster.urls())
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	if t.js, err = jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(1000), jetstream.WithDefaultTimeout(3*time.Second)); err != nil {
		return nil, err
	}
	t.sender = &sender{nc: nc, js: t.js, sent: map[uint64]*sent{}}
	r, err := t.run(ctx)
	if err == nil && r.Passed {
		return r, os.RemoveAll(dir)
	}
	t.tell("logs and data are kept in %s", dir)
	return r, err
}

func (t *trial) run(ctx context.Context) (*report, error) {
	if err := t.prepare(ctx); err != nil {
		return nil, err
	}
	r := &report{Duration: t.duration.String(), Rate: t.rate, AckWait: t.ackWait.String(), Schedules: t.schedules, Retention: t.retention}
	if t.rounds > 0 {
		var err error
		if r.ClaimRatios, r.ClaimRatio, err = measureClaims(ctx, t.cluster.urls(), layoutOf(claimPrefix, t.retention == "interest"), t.rounds, t.tell); err != nil {
			return nil, fmt.Errorf("claims: %w", err)
		}
	}
	if err := t.startWorkers(); err != nil {
		return nil, err
	}
	t.tell("%d workers run; messages are sent for %v", workerCount, t.duration)
	c := &chaos{cluster: t.cluster, js: t.js, workers: t.workers, lease: t.ackWait - margin, tell: t.tell}
	sending, stop := context.WithTimeout(ctx, t.duration)
	defer stop()
	sent := make(chan bool)
	go func() { defer close(sent); t.sender.run(sending, t.rate) }()
	if t.faults {
		c.run(sending, t.duration)
	}
	<-sent
	r.Faults = c.faults
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	h, err := t.finish(ctx)
	if err != nil {
		return nil, err
	}
	r.findings = check(h)
	r.Passed = r.passed() && r.ClaimRatio >= claimBound
	return r, nil
}

// prepare makes the stream, its consumer and the schedules that lie in it.
func (t *trial) prepare(ctx context.Context) error {
	var stream jetstream.Stream
	err := errors.New("no attempt")
	for start := time.Now(); err != nil; {
		if time.Since(start) > time.Minute {
			return fmt.Errorf("the stream cannot be made: %w", err)
		}
		pause(ctx, 500*time.Millisecond)
		stream, err = t.js.CreateStream(ctx, t.layout.stream(jetstream.StreamConfig{Name: streamName, Duplicates: 2 * time.Minute,
			AllowMsgTTL: true, AllowAtomicPublish: true, AllowMsgSchedules: true, AllowDirect: true}))
	}
	if _, err := t.layout.consumers(ctx, stream, t.ackWait, 4000); err != nil {
		return err
	}
	at := time.Now().Add(t.duration + 12*time.Hour).UTC().Format(time.RFC3339)
	for i := range t.schedules {
		m := message(schedules+strconv.Itoa(i), uint64(i))
		m.Data = nil
		m.Header.Set("Nats-Schedule", "@at "+at)
		m.Header.Set("Nats-Schedule-Target", t.layout.target)
		if _, err := t.js.PublishMsgAsync(m); err != nil {
			return err
		}
	}
	select {
	case <-t.js.PublishAsyncComplete():
	case <-time.After(5 * time.Minute):
		return errors.New("the schedules were not confirmed within five minutes")
	}
	left, err := t.count(ctx, schedules)
	if err == nil && left != t.schedules {
		err = fmt.Errorf("%d of %d schedules are in the stream", left, t.schedules)
	}
	t.tell("%d schedules lie in the stream", left)
	return err
}

// count counts the subjects that start with a prefix.
func (t *trial) count(ctx context.Context, prefix string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	stream, err := t.js.Stream(ctx, streamName)
	if err != nil {
		return 0, err
	}
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(prefix+"*"))
	if err != nil {
		return 0, err
	}
	return len(info.State.Subjects), nil
}

func (t *trial) log(i int) string { return filepath.Join(t.dir, fmt.Sprintf("worker%d.log", i)) }

func (t *trial) startWorkers() error {
	for i := range workerCount {
		s := settings{URL: t.cluster.urls(), Stream: streamName, Consumer: consumerName, Retry: t.layout.retry, Target: t.layout.target,
			AckWait: t.ackWait, Failing: 10, Slow: 100, Log: t.log(i)}
		text, err := json.Marshal(s)
		if err != nil {
			return err
		}
		cmd, err := child("worker", string(text))
		if err != nil {
			return err
		}
		t.workers = append(t.workers, cmd)
	}
	return nil
}

// finish waits for twice AckWait after all is healed, ends the workers and collects the history.
func (t *trial) finish(ctx context.Context) (*history, error) {
	if err := heal(ctx, t.js); err != nil {
		return nil, err
	}
	t.tell("everything is healed")
	for healed := time.Now(); time.Since(healed) < 2*t.ackWait; {
		pause(ctx, time.Second)
	}
	h := &history{sent: t.sender.sent, left: map[uint64]bool{}, repeats: t.sender.repeats, repeatsAccepted: t.sender.accepted, schedules: t.schedules}
	consumer, err := t.js.Consumer(ctx, streamName, consumerName)
	if err != nil {
		return nil, err
	}
	info := consumer.CachedInfo()
	waiting, err := t.count(ctx, t.layout.retry)
	if err != nil {
		return nil, err
	}
	stuck := int(info.NumPending) + info.NumAckPending + waiting
	t.tell("left: %d waiting, %d in hand, %d retries", info.NumPending, info.NumAckPending, waiting)
	for i, w := range t.workers {
		_ = w.Process.Signal(syscall.SIGTERM)
		if err := w.Wait(); err != nil {
			return nil, fmt.Errorf("worker %d: %w", i, err)
		}
		file, err := os.Open(t.log(i))
		if err != nil {
			return nil, err
		}
		steps, err := readSteps(file)
		file.Close()
		if err != nil {
			return nil, err
		}
		h.steps = append(h.steps, steps...)
	}
	if stuck > 0 {
		t.readLeft(consumer, h)
	}
	h.leftOther = max(0, stuck-len(h.left))
	if h.schedulesLeft, err = t.count(ctx, schedules); err != nil {
		return nil, err
	}
	h.leaked, err = t.leaks(ctx, stuck-waiting)
	return h, err
}

// readLeft reads the ids of what the workers left.
func (t *trial) readLeft(consumer jetstream.Consumer, h *history) {
	for range 5 {
		batch, err := consumer.Fetch(1000, jetstream.FetchMaxWait(t.ackWait/2))
		if err != nil {
			continue
		}
		for m := range batch.Messages() {
			id, _ := strconv.ParseUint(m.Headers().Get(headerID), 10, 64)
			h.left[id] = true
		}
	}
}
