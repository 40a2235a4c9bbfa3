// Package source takes messages from a broker into a queue of the ledger, and acknowledges
// them to the broker once they are committed there. From then on the queue's handlers,
// retries, dead letters, limits and order apply to them.
//
// # Guarantees
//
// A message is acknowledged after its send has committed, and never before. If the process,
// the broker or the connection fails in between, the broker redelivers it, and the second
// send is deduplicated by the broker's message id within [Config.DedupeWindow]. A message
// without an id (possible only with RabbitMQ) may be in the queue twice then.
//
// While the database is unreachable, nothing is acknowledged, and after a minute the
// messages are returned to the broker. While the broker is unreachable, the source retries.
// While [Config.MaxWaiting] messages wait in the queue, the source reads nothing, so that
// the backlog stays in the broker. Messages that the ledger rejects for good are published
// to another place at the broker, with the reason. They neither delay nor repeat other
// messages.
//
// The packages below broker have a source for each broker. [Source] is their common part.
package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/relay"
)

// Headers of a refused message.
const (
	HeaderRefused     = "posthaste-refused"      // the reason, as text
	HeaderRefusedCode = "posthaste-refused-code" // the [posthaste.Code]
)

// Config is the configuration that all sources share. Only Queue is required. The fields
// with a key can be set in a file of relays.
type Config struct {
	// Queue is the queue of the ledger that gets the messages.
	Queue string `yaml:"queue"`
	// Batch is the maximum number of messages of one send, 1 to 10,000 (default 500). A
	// send never waits for more messages to arrive.
	Batch int `yaml:"batch"`
	// MaxWaiting is the number of waiting messages in the queue (of the subscription
	// with the most) at which reading pauses (default 10,000; negative: no limit).
	// Messages from other senders and sources can exceed it. A limit requires the role
	// posthaste_admin, which may read the state of queues; without one, posthaste_sender
	// is enough.
	MaxWaiting int `yaml:"max_waiting"`
	// DedupeWindow is how long message ids are remembered (default 24 h).
	DedupeWindow time.Duration `yaml:"dedupe_window"`
	// Unpack, if set, turns one message into several, such as a chunk of ten
	// notifications. They are sent together or not at all. Its argument is the message
	// to send, with a payload of type []byte. The result may leave Queue empty. A dedupe
	// key that is empty or unchanged becomes the original key with a number. If there
	// are no messages, the original is only acknowledged. After an error or a panic, the
	// message is refused with the reason.
	Unpack func(ctx context.Context, m posthaste.Message) ([]posthaste.Message, error) `yaml:"-"`
	// Grace bounds the send and acknowledgment of the current batch when the source
	// stops (default 20 s).
	Grace time.Duration `yaml:"-"`
	// Telemetry gets an event for each batch ([posthaste.EventTaken]). Nil disables it.
	Telemetry posthaste.Telemetry `yaml:"-"`
	// Logger logs when the database, the queue or the broker becomes unusable, and every
	// refused or duplicate message, without payloads. Nil disables logging.
	Logger *slog.Logger `yaml:"-"`
}

// Ledger is the part of a [posthaste.Engine] that a source needs.
type Ledger interface {
	Send(ctx context.Context, messages ...posthaste.Message) ([]posthaste.Sent, error)
	Queues(ctx context.Context, names ...string) ([]posthaste.QueueInfo, error)
	Maintain(ctx context.Context, what posthaste.Upkeep) (posthaste.MaintainReply, error)
}

// Broker is the broker of a source. If its sessions reopen their connections, it needs a
// further method, Away() bool, which reports that none could be opened.
type Broker interface {
	// Kind and Address return its name and addresses, such as "kafka" and "host:port",
	// without secrets.
	Kind() string
	Address() string
	// Check connects to the broker and verifies the configuration. The error is Invalid
	// with the field, or Unavailable if the broker does not answer.
	Check(ctx context.Context) error
	// Open starts to consume.
	Open(ctx context.Context) (Session, error)
}

// Session consumes from a broker. It is used by one goroutine at a time. After an error it
// is closed, and a new one is opened.
type Session interface {
	// Read returns the messages that have arrived, at most limit, in the broker's order.
	// It waits for the first one until ctx ends, and never for more.
	Read(ctx context.Context, limit int) ([]Arrival, error)
	// Acknowledge acknowledges messages to the broker.
	Acknowledge(ctx context.Context, arrived []Arrival) error
	// Refuse puts a message aside, with headers in addition to its own. It returns once
	// the broker has stored it, and does not acknowledge it.
	Refuse(ctx context.Context, a Arrival, headers map[string]string) error
	// Use reports whether the session can still be used.
	Use() bool
	// Close ends the session and returns unacknowledged messages to the broker.
	Close()
}

// Arrival is a message that was read from a broker.
type Arrival struct {
	// Message is the message to send, before Queue and DedupeWindow are set and
	// [Config.Unpack] is called.
	Message posthaste.Message
	// Err is the reason why it cannot be sent.
	Err error
	// Token identifies it to the session.
	Token any
}

// Source takes messages from a broker into a queue.
type Source struct {
	Config
	ledger   Ledger
	broker   Broker
	sessions *relay.Connections[Session]
	capacity capacity
	running  atomic.Bool
	// newest is the highest message id that the ledger has returned, or 0.
	newest posthaste.MessageID
	// trouble is why sending fails, or empty.
	trouble  string
	patience time.Duration
}

// Pauses after failures.
const (
	firstPause = 50 * time.Millisecond
	longPause  = 5 * time.Second
)

// patience is how long messages are held while the store is unreachable or has no room.
// Then they are returned to the broker, because another process may reach it.
const patience = time.Minute

// New returns a source, which connects when it runs. Errors are *posthaste.Error with the
// field.
func New(ledger Ledger, c Config, broker Broker) (*Source, error) {
	if err := posthaste.CheckName("queue", c.Queue); err != nil {
		return nil, err
	}
	if err := relay.Bounded("batch", &c.Batch, relay.DefaultBatch, 10_000); err != nil {
		return nil, err
	}
	c.MaxWaiting = cmp.Or(c.MaxWaiting, 10_000)
	if c.DedupeWindow = cmp.Or(c.DedupeWindow, 24*time.Hour); c.DedupeWindow < 0 || c.DedupeWindow > posthaste.MaxDedupeWindow {
		return nil, posthaste.Invalidf("dedupe_window", "dedupe_window must be above zero and at most 365 days, got %s", c.DedupeWindow)
	}
	if c.Grace = cmp.Or(c.Grace, 20*time.Second); c.Grace < 0 {
		return nil, posthaste.Invalidf("grace", "grace must not be negative, got %s", c.Grace)
	}
	if c.Telemetry == nil {
		c.Telemetry = posthaste.NoTelemetry{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Logger = c.Logger.With("queue", c.Queue)
	s := &Source{Config: c, ledger: ledger, broker: broker, patience: patience, capacity: capacity{ledger: ledger, queue: c.Queue, limit: int64(c.MaxWaiting), resume: int64(min(c.Batch, max(1, c.MaxWaiting/10)))}}
	s.sessions = relay.NewConnections(1, relay.Server{Kind: broker.Kind(), Address: broker.Address()}, c.Logger, broker.Open)
	return s, nil
}

// Address returns the broker's address, without secrets.
func (s *Source) Address() string { return s.broker.Address() }

// Away reports whether the last attempt to use the broker failed. It is safe for concurrent
// use.
func (s *Source) Away() bool {
	if b, ok := s.broker.(interface{ Away() bool }); ok && b.Away() {
		return true
	}
	return s.sessions.Away()
}

// Check connects to the database and the broker and verifies the configuration, such as the
// queue, the login and the certificate. An error is a *posthaste.Error: Invalid with the
// field if the configuration is wrong, Unavailable if one of them does not answer.
func (s *Source) Check(ctx context.Context) error {
	found, err := s.ledger.Queues(ctx, s.Queue)
	if posthaste.CodeOf(err) == posthaste.CodeDenied && s.MaxWaiting < 0 {
		return s.broker.Check(ctx) // the role may only send
	}
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "queue", Message: fmt.Sprintf("queue %q not found", s.Queue),
			Hint: "create it: posthaste queue create " + s.Queue}
	}
	return s.broker.Check(ctx)
}

// Run takes messages in until ctx ends. Then it stops reading, finishes the current batch
// within Grace, returns the rest to the broker, and returns nil. Failures are logged and
// retried. A source runs once at a time, and stores one batch after the other, in the
// broker's order. Several sources with the same configuration share the work.
func (s *Source) Run(ctx context.Context) error {
	if s.running.Swap(true) {
		return &posthaste.Error{Code: posthaste.CodeConflict, Message: "the source is running already", Hint: "create another source to run two at a time"}
	}
	defer s.running.Store(false)
	work, done := s.grace(ctx)
	defer done()
	for pause := firstPause; ctx.Err() == nil; {
		if s.await(ctx) != nil {
			break
		}
		session, err := s.sessions.Get(ctx, 0)
		if err != nil {
			break // Get waits for the broker until ctx ends
		}
		took, err := s.consume(ctx, work, session)
		session.Close()
		if took {
			pause = firstPause
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		s.Logger.Warn("reading was interrupted, and is restarted", "broker", s.broker.Address(), "error", err)
		wait(ctx, pause)
		pause = min(2*pause, longPause)
	}
	return nil
}

// grace returns the context of the work that continues for Grace after ctx has ended.
func (s *Source) grace(ctx context.Context) (context.Context, func()) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(s.Grace):
			cancel()
		case <-work.Done():
		}
	})
	return work, func() { stop(); cancel() }
}

// consume stores batch after batch until there is no capacity for a minute (nil), ctx ends or
// something fails. took reports that at least one batch was stored.
func (s *Source) consume(ctx, work context.Context, session Session) (took bool, err error) {
	for {
		limit, err := s.capacity.wait(ctx, s.patience, s.reportSending)
		if err != nil || limit == 0 {
			return took, err
		}
		begun := time.Now()
		arrived, err := session.Read(ctx, min(limit, s.Batch))
		if err != nil {
			return took, err
		}
		if len(arrived) == 0 {
			continue
		}
		e := posthaste.Event{Kind: posthaste.EventTaken, Queue: s.Queue, Broker: s.broker.Address(), Count: len(arrived), Claim: time.Since(begun)}
		if err := s.take(ctx, work, session, arrived, &e); err != nil {
			return took, err
		}
		took = true
		s.Telemetry.Event(work, e)
	}
}

// await returns once there is room in the queue, or ctx ends. It is called before a session
// is opened, so that no message is read that would have to wait.
func (s *Source) await(ctx context.Context) error {
	for {
		limit, err := s.capacity.wait(ctx, s.patience, s.reportSending)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil && limit > 0 {
			return nil
		}
	}
}

// reportSending logs once that sending fails and why, and once that it works again.
func (s *Source) reportSending(err error) {
	var reason string
	if err != nil {
		reason = cmp.Or(string(posthaste.CodeOf(err)), "error")
	}
	switch {
	case reason == s.trouble:
		return
	case reason == "":
		s.Logger.Info("messages are stored again")
	default:
		level := slog.LevelWarn
		if posthaste.CodeOf(err) == posthaste.CodeNotFound || posthaste.CodeOf(err) == posthaste.CodeDenied {
			level = slog.LevelError // because it needs an operator
		}
		s.Logger.Log(context.Background(), level, "messages cannot be stored: they stay in the broker, and storing is retried", "error", err)
	}
	s.trouble = reason
}

// wait waits for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// refused reports that an error is permanent and caused by the message.
func refused(err error) bool {
	var e *posthaste.Error
	if !errors.As(err, &e) {
		return false
	}
	return e.Code == posthaste.CodeInvalid || e.Code == posthaste.CodeTooLarge || e.Code == posthaste.CodeUnsupported
}
