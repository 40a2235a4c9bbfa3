// Package source takes messages from a broker into a queue of the ledger, and
// acknowledges them to the broker once they are committed there. From then on they
// are messages like all others: handlers, retries, dead letters, limits, order and
// cancelling are those of the queue.
//
// # What is promised
//
// A message is acknowledged after the commit of its send, and never before. If the
// process, the broker or the connection ends in between, the broker delivers it
// again, and the second send finds the first by its dedupe key, which is the
// broker's id of the message, within [Config.DedupeWindow]. Messages without an id
// (only RabbitMQ has such) may then be in the queue twice.
//
// While the database is away nothing is acknowledged, and what was read is given
// back after a minute; while the broker is away it is tried again. While as many
// messages wait in the queue as [Config.MaxWaiting] says, nothing is read: the
// backlog stays in the broker. What the ledger refuses for good is put aside at the
// broker with the reason, and holds up and repeats nothing else.
//
// The packages below this one are the sources: [Source] is what all of them share.
package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	posthaste "github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/relay"
)

// Headers that a message gets when it is put aside.
const (
	HeaderRefused     = "posthaste-refused"      // why, in words
	HeaderRefusedCode = "posthaste-refused-code" // the [posthaste.Code]
)

// Config is what all sources share. Only Queue is required.
type Config struct {
	// Queue is the queue of the ledger that gets the messages.
	Queue string
	// Batch is the most messages of one send, 1 to 10,000 (default 500). A send
	// carries what has arrived; nothing waits for more.
	Batch int
	// MaxWaiting is how many messages may wait in the queue, for the subscription
	// that has most, before reading pauses (default 10,000; negative: however many).
	// What others send to the queue meanwhile, or take in by sources of their own,
	// comes on top. Who bounds it needs the role posthaste_admin, for that may look at
	// queues; otherwise posthaste_sender is enough.
	MaxWaiting int
	// DedupeWindow is how long ids of messages are remembered (default 24 h).
	DedupeWindow time.Duration
	// Unpack, if set, makes one or more messages of one, such as of a chunk of ten
	// notifications; those go into the ledger together or not at all. It gets the
	// message as it would be sent, its payload a []byte. Queue may be left empty; a
	// dedupe key that is empty, or still that of the whole, becomes that of the whole
	// with a number. None at all: the message is only acknowledged. An error, or a
	// panic, refuses the message for good: it is put aside with the reason.
	Unpack func(ctx context.Context, m posthaste.Message) ([]posthaste.Message, error)
	// Grace is how long the batch in hand may take to be sent and acknowledged once
	// the source is to stop (default 20 s).
	Grace time.Duration
	// Telemetry is told of every batch ([posthaste.EventTaken]; nil: nobody).
	Telemetry posthaste.Telemetry
	// Logger is told when the database, the queue or the broker cannot be used, of
	// every message that is put aside, and of those that were in the queue already
	// (nil: nobody). Payloads are never logged.
	Logger *slog.Logger
}

// Ledger is what a source needs of a [posthaste.Engine].
type Ledger interface {
	Send(ctx context.Context, messages ...posthaste.Message) ([]posthaste.MessageID, error)
	Queues(ctx context.Context, names ...string) ([]posthaste.QueueInfo, error)
	Maintain(ctx context.Context) (posthaste.MaintainReply, error)
}

// Broker is where a source takes messages from. One whose sessions outlive their
// connections says by a further method, Away() bool, that none could be opened.
type Broker interface {
	// Kind and Address name it, "kafka" at "host:port", without secrets.
	Kind() string
	Address() string
	// Check finds what is wrong with the configuration, by asking the broker: then
	// the error is an Invalid one with the field, or Unavailable where the broker
	// does not answer.
	Check(ctx context.Context) error
	// Open begins to consume.
	Open(ctx context.Context) (Session, error)
}

// Session consumes from a broker for as long as its connection lasts. It is used by
// one goroutine at a time. After an error it is closed, and a new one opened.
type Session interface {
	// Read returns what has arrived, at most most messages in the order of the
	// broker. It waits for one, as long as ctx lasts, and never for more.
	Read(ctx context.Context, most int) ([]Arrival, error)
	// Acknowledge tells the broker that it need not keep what was read.
	Acknowledge(ctx context.Context, arrived []Arrival) error
	// Refuse puts a message aside, with headers in addition to its own. It returns
	// once the broker has it there for good, and does not acknowledge it.
	Refuse(ctx context.Context, a Arrival, headers map[string]string) error
	// Use says whether the session can still be used.
	Use() bool
	// Close ends it. What was read and not acknowledged goes back to the broker.
	Close()
}

// Arrival is a message that was read from a broker.
type Arrival struct {
	// Message is as it shall be sent; Queue, DedupeWindow and what [Config.Unpack]
	// does are added.
	Message posthaste.Message
	// Err says that it is no message that could be sent.
	Err error
	// Token is by what the session knows it.
	Token any
}

// Source takes messages from a broker into a queue.
type Source struct {
	Config
	ledger   Ledger
	broker   Broker
	sessions *relay.Connections[Session]
	room     room
	running  atomic.Bool
	// newest is the highest message id that the ledger has answered; 0: none yet.
	newest posthaste.MessageID
	// trouble is why sending fails; empty while it does not.
	trouble  string
	patience time.Duration
}

// Pauses after what failed.
const (
	firstPause = 50 * time.Millisecond
	longPause  = 5 * time.Second
)

// patience is how long messages are held while the store cannot be reached, or has no
// room, before they go back to the broker: another process may have better luck.
const patience = time.Minute

// New returns a source, which connects to nobody yet. Errors are *posthaste.Error
// with the field.
func New(ledger Ledger, c Config, broker Broker) (*Source, error) {
	if err := posthaste.CheckName("queue", c.Queue); err != nil {
		return nil, err
	}
	if err := relay.Bounded("batch", &c.Batch, relay.DefaultBatch, 10_000); err != nil {
		return nil, err
	}
	c.MaxWaiting = cmp.Or(c.MaxWaiting, 10_000)
	if c.DedupeWindow = cmp.Or(c.DedupeWindow, 24*time.Hour); c.DedupeWindow < 0 || c.DedupeWindow > posthaste.MaxDedupeWindow {
		return nil, posthaste.Invalidf("dedupe_window", "dedupe_window must be above zero and at most 365 days, and is %s", c.DedupeWindow)
	}
	if c.Grace = cmp.Or(c.Grace, 20*time.Second); c.Grace < 0 {
		return nil, posthaste.Invalidf("grace", "grace must not be negative, and is %s", c.Grace)
	}
	if c.Telemetry == nil {
		c.Telemetry = posthaste.NoTelemetry{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Logger = c.Logger.With("queue", c.Queue)
	s := &Source{Config: c, ledger: ledger, broker: broker, patience: patience, room: room{ledger: ledger, queue: c.Queue, most: int64(c.MaxWaiting), least: int64(min(c.Batch, max(1, c.MaxWaiting/10)))}}
	s.sessions = relay.NewConnections(1, broker.Kind(), broker.Address(), c.Logger, broker.Open)
	return s, nil
}

// Address is the broker's address, without secrets.
func (s *Source) Address() string { return s.broker.Address() }

// Away says whether the broker could not be used when it was tried last. It is safe for
// concurrent use.
func (s *Source) Away() bool {
	if b, ok := s.broker.(interface{ Away() bool }); ok && b.Away() {
		return true
	}
	return s.sessions.Away()
}

// Check finds what is wrong with the configuration, by asking the database and the
// broker: a queue that is not there, a login, a certificate. Then the error is a
// *posthaste.Error of code Invalid with the field; where one of them does not answer,
// of code Unavailable.
func (s *Source) Check(ctx context.Context) error {
	found, err := s.ledger.Queues(ctx, s.Queue)
	if posthaste.CodeOf(err) == posthaste.Denied && s.MaxWaiting < 0 {
		return s.broker.Check(ctx) // who may only send
	}
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return &posthaste.Error{Code: posthaste.Invalid, Field: "queue", Message: fmt.Sprintf("there is no queue %q to take messages into", s.Queue),
			Hint: "create it, as by posthaste queue create " + s.Queue}
	}
	return s.broker.Check(ctx)
}

// Run takes messages in until ctx ends. Then it stops reading, finishes the batch in
// hand within Grace, gives the rest back to the broker, and returns nil. What fails
// meanwhile is logged and tried again. A source runs once at a time, and takes in one
// batch after the other, in the broker's order; several with the same configuration
// share the work.
func (s *Source) Run(ctx context.Context) error {
	if s.running.Swap(true) {
		return &posthaste.Error{Code: posthaste.Conflict, Message: "the source runs already", Hint: "make another one to take in more at the same time"}
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
			break // it waits for the broker as long as ctx lasts
		}
		took, err := s.consume(ctx, work, session)
		session.Close()
		if took {
			pause = firstPause
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		s.Logger.Warn("taking messages in was interrupted, and is begun again", "broker", s.broker.Address(), "error", err)
		wait(ctx, pause)
		pause = min(2*pause, longPause)
	}
	return nil
}

// grace is the context of what shall still be finished when ctx has ended.
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

// consume takes in batch after batch, until there is no room for a minute (nil), ctx
// ends or something fails. took says that something was taken in.
func (s *Source) consume(ctx, work context.Context, session Session) (took bool, err error) {
	for {
		most, err := s.room.wait(ctx, s.patience, s.told)
		if err != nil || most == 0 {
			return took, err
		}
		begun := time.Now()
		arrived, err := session.Read(ctx, min(most, s.Batch))
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

// await returns once there is room in the queue, or ctx ends: before a session is
// opened, so that nothing is read that would have to wait.
func (s *Source) await(ctx context.Context) error {
	for {
		most, err := s.room.wait(ctx, s.patience, s.told)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil && most > 0 {
			return nil
		}
	}
}

// told logs that sending fails, why, and that it no longer does: each once.
func (s *Source) told(err error) {
	var reason string
	if err != nil {
		reason = cmp.Or(string(posthaste.CodeOf(err)), "error")
	}
	switch {
	case reason == s.trouble:
		return
	case reason == "":
		s.Logger.Info("messages are taken in again")
	default:
		level := slog.LevelWarn
		if posthaste.CodeOf(err) == posthaste.NotFound || posthaste.CodeOf(err) == posthaste.Denied {
			level = slog.LevelError // it will not pass by itself
		}
		s.Logger.Log(context.Background(), level, "no messages can be taken in: they stay in the broker, and it is tried again", "error", err)
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

// refused says that an error is one of the message, and for good.
func refused(err error) bool {
	var e *posthaste.Error
	if !errors.As(err, &e) {
		return false
	}
	return e.Code == posthaste.Invalid || e.Code == posthaste.TooLarge || e.Code == posthaste.Unsupported
}
