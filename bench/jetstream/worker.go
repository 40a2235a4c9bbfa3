package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sys/unix"
)

// Headers of a message.
const (
	headerID      = "Trial-Id"
	headerFails   = "Trial-Fails"
	headerAttempt = "Trial-Attempt"
	headerFrom    = "Trial-From"
)

// margin is by how much a lease ends before the server may deliver again.
const margin = time.Second

const (
	pullSize = 100
	runners  = 16
	resend   = time.Second
	// longestPull bounds a pull, which is at most a third of AckWait.
	longestPull = 3 * time.Second
)

// settings are those of a worker.
type settings struct {
	URL, Stream, Consumer, Log string
	// Retry is the prefix of a retry's schedule, and Target its subject when it is due.
	Retry, Target string
	AckWait       time.Duration
	// Failing is the reciprocal share of the messages whose first run fails; 0 for none.
	Failing uint64
	// Slow is the reciprocal share of the runs that take 300 ms; 0 for none.
	Slow uint64
}

// now counts suspended time too.
func now() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t)
	return t.Nano()
}

type worker struct {
	settings
	js     jetstream.JetStream
	nc     *nats.Conn
	acks   string // prefix of the inbox for confirmations
	hand   chan delivery
	onKept func()
	token  atomic.Uint64

	mu      sync.Mutex
	pending map[string]*ack
	log     *bufio.Writer
}

type delivery struct {
	jetstream.Msg
	lease int64
}

type ack struct {
	step  *step
	reply string
	sent  int64
}

// connect connects without a buffer for the time without a connection: an
// acknowledgment from there could be one whose lease has ended.
func connect(url string) (*nats.Conn, error) {
	return nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(200*time.Millisecond), nats.ReconnectBufSize(-1),
		nats.RetryOnFailedConnect(true), nats.IgnoreAuthErrorAbort(), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
		nats.PingInterval(2*time.Second), nats.MaxPingsOutstanding(2))
}

func newWorker(s settings, nc *nats.Conn, log *bufio.Writer) (*worker, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	w := &worker{settings: s, js: js, nc: nc, acks: nats.NewInbox() + ".", hand: make(chan delivery, 2*pullSize),
		onKept: func() {}, pending: map[string]*ack{}, log: log}
	_, err = nc.Subscribe(w.acks+"*", w.confirmed)
	return w, err
}

// runWorker is the worker's process. It ends with SIGTERM.
func runWorker(arg string) error {
	var s settings
	if err := json.Unmarshal([]byte(arg), &s); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	nc, err := connect(s.URL)
	if err != nil {
		return err
	}
	defer nc.Close()
	file, err := os.Create(s.Log)
	if err != nil {
		return err
	}
	defer file.Close()
	w, err := newWorker(s, nc, bufio.NewWriter(file))
	if err != nil {
		return err
	}
	w.work(ctx)
	return w.log.Flush()
}

// work pulls and runs until ctx ends, and then waits for the last acknowledgments.
func (w *worker) work(ctx context.Context) {
	var pulls, runs sync.WaitGroup
	for range 2 {
		pulls.Go(func() { w.pull(ctx) })
	}
	for range runners {
		runs.Go(func() {
			for d := range w.hand {
				w.handle(d)
			}
		})
	}
	ended := make(chan struct{})
	var repeats sync.WaitGroup
	repeats.Go(func() { w.repeat(ended) })
	pulls.Wait()
	close(w.hand)
	runs.Wait()
	close(ended)
	repeats.Wait()
}

// pull fills the hand with short pulls. The lease counts from when the pull was sent.
func (w *worker) pull(ctx context.Context) {
	// Without a majority the server does not answer; the client's own limits end the calls.
	consumer, err := w.js.Consumer(ctx, w.Stream, w.Consumer)
	for err != nil {
		if ctx.Err() != nil {
			return
		}
		pause(ctx, 200*time.Millisecond)
		consumer, err = w.js.Consumer(ctx, w.Stream, w.Consumer)
	}
	for ctx.Err() == nil {
		lease := now() + int64(w.AckWait-margin)
		batch, err := consumer.Fetch(pullSize, jetstream.FetchMaxWait(min(w.AckWait/3, longestPull)))
		if err != nil {
			pause(ctx, 200*time.Millisecond)
			continue
		}
		empty := true
		for m := range batch.Messages() {
			empty = false
			w.hand <- delivery{m, lease}
		}
		if empty && batch.Error() != nil {
			pause(ctx, 200*time.Millisecond)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// handle runs a first delivery and copies a later one.
func (w *worker) handle(d delivery) {
	meta, err := d.Metadata()
	if err != nil || now() > d.lease {
		return // it comes again
	}
	number := func(header string) uint64 { n, _ := strconv.ParseUint(d.Headers().Get(header), 10, 64); return n }
	s := &step{id: number(headerID), seq: meta.Sequence.Stream, from: number(headerFrom), fails: int(number(headerFails)),
		attempt: int(number(headerAttempt)), delivery: meta.NumDelivered, start: now(), lease: d.lease, outcome: done}
	next := nats.NewMsg(d.Subject())
	next.Data = d.Data()
	next.Header.Set(headerID, strconv.FormatUint(s.id, 10))
	next.Header.Set(headerFrom, strconv.FormatUint(s.seq, 10))
	next.Header.Set(headerAttempt, strconv.Itoa(s.attempt+1))
	next.Header.Set(headerFails, strconv.Itoa(s.fails))
	switch {
	case s.delivery > 1:
		s.outcome = copied
		next.Header.Set(nats.MsgIdHdr, "c."+strconv.FormatUint(s.seq, 10))
		err = w.publish(next, d.lease)
	case w.Failing > 0 && s.fails == 0 && s.id%w.Failing == 0:
		s.outcome = failed
		next.Subject = w.Retry + strconv.FormatUint(s.id, 10)
		next.Header.Set(headerFails, strconv.Itoa(s.fails+1))
		next.Header.Set("Nats-Schedule", "@at "+time.Now().Add(2*time.Second).UTC().Format(time.RFC3339Nano))
		next.Header.Set("Nats-Schedule-Target", w.Target)
		err = w.publish(next, d.lease)
	case w.Slow > 0 && s.id%w.Slow == 1:
		time.Sleep(300 * time.Millisecond)
	}
	s.end = now()
	if err != nil || s.end > s.lease {
		w.settled(s)
		return
	}
	w.ack(s, d.Reply())
}

// publish publishes a copy or a schedule and waits for the confirmation until the lease ends.
func (w *worker) publish(m *nats.Msg, lease int64) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(lease-now()))
	defer cancel()
	_, err := w.js.PublishMsg(ctx, m)
	return err
}

// ack sends an acknowledgment whose confirmation comes to the worker's inbox.
func (w *worker) ack(s *step, reply string) {
	token := strconv.FormatUint(w.token.Add(1), 10)
	w.mu.Lock()
	w.pending[token] = &ack{step: s, reply: reply, sent: now()}
	w.mu.Unlock()
	w.send(reply, token)
}

func (w *worker) send(reply, token string) {
	_ = w.nc.PublishMsg(&nats.Msg{Subject: reply, Reply: w.acks + token, Data: []byte("+ACK")}) // repeat repeats it
}

func (w *worker) confirmed(m *nats.Msg) {
	if m.Header.Get("Status") != "" || len(m.Data) > 0 { // 503: no server received it
		return
	}
	token := m.Subject[len(w.acks):]
	w.mu.Lock()
	a := w.pending[token]
	delete(w.pending, token)
	w.mu.Unlock()
	if a != nil {
		a.step.settled = now()
		w.settled(a.step)
		w.onKept()
	}
}

// repeat sends unconfirmed acknowledgments again within their lease. It returns when there are
// none after ended is closed.
func (w *worker) repeat(ended chan struct{}) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		at, again := now(), map[string]string{}
		var given []*step
		w.mu.Lock()
		for token, a := range w.pending {
			if at > a.step.lease {
				given = append(given, a.step)
				delete(w.pending, token)
			} else if at-a.sent > int64(resend) {
				a.sent = at
				again[token] = a.reply
			}
		}
		rest := len(w.pending)
		w.mu.Unlock()
		for _, s := range given {
			w.settled(s)
		}
		for token, reply := range again {
			w.send(reply, token)
		}
		select {
		case <-ended:
			if rest == 0 {
				return
			}
		default:
		}
	}
}

// settled logs a step that ends here, confirmed or not.
func (w *worker) settled(s *step) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.write(w.log)
}
