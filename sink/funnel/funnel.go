// Package funnel is the sink that forwards messages into a queue of another engine. It collects
// messages of any number of databases in one store.
//
// A message is delivered at least once. Its dedupe key consists of the origin and its id, so a
// redelivery within the dedupe window stores nothing.
package funnel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/relay"
)

// HeaderPath is the header with the origins and queues from which a message was relayed, such as
// "shop/orders", separated by spaces.
const HeaderPath = "posthaste-path"

// Bounds of one send. Larger batches are divided.
const (
	maxMessages = 1000
	maxBytes    = 16 << 20
)

// DefaultDedupeWindow is the default of Config.DedupeWindow. It exceeds the time for which a
// message is retried with the default options of a queue.
const DefaultDedupeWindow = 7 * 24 * time.Hour

// Target is the engine that gets the messages. Every [posthaste.Engine] is one.
type Target interface {
	posthaste.Sender
	Queues(ctx context.Context, names ...string) ([]posthaste.QueueInfo, error)
	Ready(ctx context.Context) error
	Close()
}

// Config configures a sink. Target and Origin are required. The fields with a key can be set in
// a file of relays.
type Config struct {
	// Target is the engine, which the sink closes.
	Target Target `yaml:"-"`
	// Name describes the target in errors and metrics, without secrets, such as
	// "redis at localhost:6379" (default "the other engine").
	Name string `yaml:"-"`
	// Origin names the database that the messages come from. It must be unique among all
	// that send to the same queue, and must never change: message ids are unique in one
	// database only, and the target knows a message by ORIGIN-ID. 1 to 63 of a-z, 0-9, "_",
	// "-" and ".".
	Origin string `yaml:"origin"`
	// Queue is the template of the target's queue (default "{{.Queue}}").
	Queue string `yaml:"to_queue"`
	// DedupeWindow is how long the target knows a message that it has stored (default 7
	// days, at most [posthaste.MaxDedupeWindow]). It must exceed the time for which a
	// message is retried.
	DedupeWindow time.Duration `yaml:"dedupe_window"`
}

// Sink sends messages to the target. It implements [posthaste.Sink].
type Sink struct {
	config Config
	queue  *relay.Template
	away   atomic.Bool
	closed atomic.Bool
}

var _ posthaste.Sink = (*Sink)(nil)

// New checks the configuration and returns a sink. Errors are *posthaste.Error with the field.
func New(c Config) (*Sink, error) {
	if c.Target == nil {
		return nil, posthaste.Invalidf("target", "no target is set: set Target to the engine that gets the messages")
	}
	c.Name = cmp.Or(c.Name, "the other engine")
	if c.Origin == "" {
		return nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "origin", Message: "no origin is set",
			Hint: "name this database, such as origin=shop: message ids are unique in one database only"}
	}
	if err := posthaste.CheckName("origin", c.Origin); err != nil {
		return nil, err
	}
	c.DedupeWindow = cmp.Or(c.DedupeWindow, DefaultDedupeWindow)
	if c.DedupeWindow < time.Second || c.DedupeWindow > posthaste.MaxDedupeWindow {
		return nil, posthaste.Invalidf("dedupe_window", "dedupe_window must be 1s to %s, got %s", posthaste.MaxDedupeWindow, c.DedupeWindow)
	}
	queue, err := relay.Compile("to_queue", cmp.Or(c.Queue, "{{.Queue}}"))
	if err != nil {
		return nil, err
	}
	if name, static := queue.Static(); static {
		if err := posthaste.CheckName("to_queue", name); err != nil {
			return nil, err
		}
	}
	return &Sink{config: c, queue: queue}, nil
}

// Broker returns the name of the target.
func (s *Sink) Broker() string { return s.config.Name }

// Away reports whether the target was unavailable at the last attempt to use it. Messages wait
// for it then. It is safe for concurrent use.
func (s *Sink) Away() bool { return s.away.Load() }

// Close closes the target. Later deliveries fail and can be retried. It is idempotent.
func (s *Sink) Close() error {
	if s.closed.CompareAndSwap(false, true) {
		s.config.Target.Close()
	}
	return nil
}

// Check verifies that the target can be used, and that the queue exists, if all messages go to
// the same one and the target may tell. An error is a *posthaste.Error: Unavailable if the
// target does not answer.
func (s *Sink) Check(ctx context.Context) error {
	if err := s.config.Target.Ready(ctx); err != nil {
		return s.named(inTime(err))
	}
	name, static := s.queue.Static()
	if !static {
		return nil
	}
	found, err := s.config.Target.Queues(ctx, name)
	switch code := posthaste.CodeOf(err); {
	case code == posthaste.CodeDenied: // a sender need not be allowed to list queues
		return nil
	case code == posthaste.CodeNotFound, err == nil && len(found) == 0:
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "to_queue", Message: fmt.Sprintf("%s has no queue %q", s.config.Name, name), Hint: "create the queue there", Cause: err}
	}
	return s.named(inTime(err))
}

// inTime returns the error of a target that did not answer in time as Unavailable.
func inTime(err error) error {
	if posthaste.CodeOf(err) != "" || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "it did not answer in time", Cause: err}
}

// named adds the name of the target to an error.
func (s *Sink) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", s.config.Name, err)
}

// Deliver implements [posthaste.Sink]. Messages for one queue are sent in one transaction. If the
// target refuses them because of one message, that message fails for good and the others are
// sent again.
func (s *Sink) Deliver(ctx context.Context, batch []posthaste.RawDelivery) []posthaste.SinkResult {
	results := make([]posthaste.SinkResult, len(batch))
	var order []string
	queues := map[string]*group{}
	for i := range batch {
		m, err := s.message(&batch[i])
		if err != nil {
			results[i].Err = err
			continue
		}
		g := queues[m.Queue]
		if g == nil {
			g = &group{}
			queues[m.Queue] = g
			order = append(order, m.Queue)
		}
		if len(g.messages) == maxMessages || g.bytes > 0 && g.bytes+len(batch[i].Payload) > maxBytes {
			s.send(ctx, *g, results)
			*g = group{}
		}
		g.messages, g.index, g.bytes = append(g.messages, m), append(g.index, i), g.bytes+len(batch[i].Payload)
	}
	for _, queue := range order {
		s.send(ctx, *queues[queue], results)
	}
	return results
}

// group is messages for one queue, with their indexes in the batch.
type group struct {
	messages []posthaste.Message
	index    []int
	bytes    int
}

// message returns the message that the target gets.
func (s *Sink) message(d *posthaste.RawDelivery) (posthaste.Message, error) {
	queue, err := s.queue.Execute(d)
	if err != nil {
		return posthaste.Message{}, err
	}
	if err := posthaste.CheckName("to_queue", queue); err != nil {
		return posthaste.Message{}, posthaste.Permanent(err)
	}
	// A circle of relays would move its messages forever.
	place := s.config.Origin + "/" + d.Queue
	path := d.Headers[HeaderPath]
	if slices.Contains(strings.Fields(path), place) {
		return posthaste.Message{}, posthaste.Permanent(&posthaste.Error{Code: posthaste.CodeRefused, Message: fmt.Sprintf("the message was already relayed from queue %q of %s: its way is %s", d.Queue, s.config.Origin, path),
			Hint: "relay to a queue that is not relayed back"})
	}
	id := s.config.Origin + "-" + d.MessageID.String()
	headers := relay.WithHeader(maps.Clone(d.Headers), HeaderPath, strings.TrimSpace(path+" "+place))
	return posthaste.Message{Queue: queue, Payload: d.Payload, ContentType: cmp.Or(d.ContentType, posthaste.ContentTypeJSON), Key: d.Key, Kind: d.Kind, Reference: d.Reference,
		Headers: relay.WithMessageID(headers, id), DedupeKey: id, DedupeWindow: s.config.DedupeWindow}, nil
}

// send sends a group and sets its results.
func (s *Sink) send(ctx context.Context, g group, results []posthaste.SinkResult) {
	if len(g.messages) == 0 {
		return
	}
	err := errClosed
	if !s.closed.Load() {
		_, err = s.config.Target.Send(ctx, g.messages...)
	}
	if !errors.Is(err, context.Canceled) { // a worker that stops says nothing about the target
		code := posthaste.CodeOf(inTime(err))
		s.away.Store(code == posthaste.CodeUnavailable || code == posthaste.CodeOutcomeUnknown || code == posthaste.CodeInvalid && !about(err))
	}
	if err == nil {
		return
	}
	if about(err) {
		if n := len(g.messages); n > 1 {
			s.send(ctx, group{messages: g.messages[:n/2], index: g.index[:n/2]}, results)
			s.send(ctx, group{messages: g.messages[n/2:], index: g.index[n/2:]}, results)
			return
		}
		err = posthaste.Permanent(err)
	} else if ctx.Err() != nil {
		err = relay.Failed(ctx, "the send was cut off", err)
	}
	for _, i := range g.index {
		results[i].Err = s.named(err)
	}
}

var errClosed = errors.New("the sink is closed")

// settings are the fields of errors that are about the address of the target, and not about a
// message. They can occur at any send, because targets connect late: such as an answer of a proxy
// that is not the server, or a database that does not exist.
var settings = []string{"server-url", "server-token", "database_url", "url"}

// about reports whether an error of a send is about its messages, so that sending them again
// would not help.
func about(err error) bool {
	e, ok := errors.AsType[*posthaste.Error](err)
	return ok && (e.Code == posthaste.CodeTooLarge || e.Code == posthaste.CodeInvalid && !slices.Contains(settings, e.Field))
}
