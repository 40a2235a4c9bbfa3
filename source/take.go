package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/relay"
)

// maxBytes is the approximate number of payload bytes of one send.
const maxBytes = 8 << 20

// unit is a message of the broker and the messages to send for it, all or none.
type unit struct {
	Arrival
	messages []posthaste.Message
	bytes    int
	stored   bool // its messages are committed
	known    bool // all of them were duplicates
}

// take sends a batch, acknowledges it, and puts refused messages aside. After an error the
// session must not be used again. Stored messages are acknowledged even then, if possible.
func (s *Source) take(ctx, work context.Context, session Session, arrived []Arrival, e *posthaste.Event) error {
	begun := time.Now()
	units := make([]unit, len(arrived))
	for i, a := range arrived {
		if units[i] = s.unpack(work, a); work.Err() != nil {
			return work.Err()
		}
	}
	failed := s.store(ctx, work, session, units)
	e.Duration = time.Since(begun)
	e.Known = s.logDuplicates(units)

	stored := make([]Arrival, 0, len(units))
	for i := range units {
		if units[i].stored {
			stored = append(stored, units[i].Arrival)
		}
	}
	acknowledging := time.Now()
	if len(stored) > 0 {
		if err := session.Acknowledge(work, stored); err != nil {
			return errors.Join(fmt.Errorf("acknowledging %d messages, which may be redelivered: %w", len(stored), err), failed)
		}
	}
	for i := range units {
		if units[i].Err == nil {
			continue
		}
		if err := s.refuse(work, session, &units[i]); err != nil {
			return errors.Join(err, failed)
		}
		e.Failed++
	}
	e.Settle, e.Total = time.Since(acknowledging), time.Since(begun)+e.Claim
	return failed
}

// logDuplicates counts the duplicates and logs their ids: if the broker did not redeliver them,
// two senders use the same id.
func (s *Source) logDuplicates(units []unit) (count int) {
	const limit = 10
	var ids []string
	for i := range units {
		if !units[i].known {
			continue
		}
		if count++; count <= limit {
			ids = append(ids, units[i].Message.DedupeKey)
		}
	}
	if count > 0 {
		s.Logger.Info("messages were in the queue already by their ids: not stored again", "broker", s.broker.Address(), "count", count, "ids", ids)
	}
	return count
}

// refuse puts a message aside, and then acknowledges it.
func (s *Source) refuse(ctx context.Context, session Session, u *unit) error {
	reason := u.Err.Error()
	if len(reason) > 1000 {
		reason = reason[:1000]
	}
	headers := map[string]string{HeaderRefused: reason, HeaderRefusedCode: string(posthaste.CodeOf(u.Err))}
	if err := session.Refuse(ctx, u.Arrival, headers); err != nil {
		return fmt.Errorf("a message was refused (%s), and putting it aside failed: %w", reason, err)
	}
	s.Logger.Error("a message was refused and put aside at the broker", "broker", s.broker.Address(), "id", u.Message.DedupeKey, "error", reason)
	if err := session.Acknowledge(ctx, []Arrival{u.Arrival}); err != nil {
		return fmt.Errorf("acknowledging a message that was put aside, and may be redelivered: %w", err)
	}
	return nil
}

// unpack returns the unit of a message of the broker.
func (s *Source) unpack(ctx context.Context, a Arrival) (u unit) {
	u.Arrival = a
	if a.Err != nil {
		return u
	}
	u.messages = []posthaste.Message{a.Message}
	if s.Unpack != nil {
		if u.messages, u.Err = s.unpacked(ctx, a.Message); u.Err != nil {
			return u
		}
	}
	whole := a.Message.DedupeKey
	for i := range u.messages {
		m := &u.messages[i]
		if m.Queue != "" && m.Queue != s.Queue {
			u.Err = posthaste.Invalidf("queue", "unpacked message %d of %d is for queue %q, but the queue of the source is %q", i+1, len(u.messages), m.Queue, s.Queue)
			return u
		}
		m.Queue = s.Queue
		if s.Unpack != nil && whole != "" && (m.DedupeKey == "" || m.DedupeKey == whole) {
			m.DedupeKey = relay.DedupeKey(whole + "/" + strconv.Itoa(i))
		}
		if m.DedupeKey != "" && m.DedupeWindow == 0 {
			m.DedupeWindow = s.DedupeWindow
		}
		if p, ok := m.Payload.([]byte); ok {
			u.bytes += len(p)
		}
	}
	return u
}

// unpacked calls Unpack and converts a panic into an error.
func (s *Source) unpacked(ctx context.Context, m posthaste.Message) (messages []posthaste.Message, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = posthaste.Invalidf("payload", "Unpack panicked: %v", p)
		}
	}()
	if messages, err = s.Unpack(ctx, m); err != nil {
		return nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "payload", Message: "unpacking failed: " + err.Error(), Cause: err}
	}
	return messages, nil
}

// store sends units, and sets stored, or Err if the ledger refuses them. After an error, the
// rest has neither.
func (s *Source) store(ctx, work context.Context, session Session, units []unit) error {
	var sending []*unit
	for i := range units {
		if units[i].Err == nil {
			sending = append(sending, &units[i])
		}
	}
	for len(sending) > 0 {
		n, count, bytes := 0, 0, 0
		for n < len(sending) && (n == 0 || count+len(sending[n].messages) <= s.Batch && bytes+sending[n].bytes <= maxBytes) {
			count += len(sending[n].messages)
			bytes += sending[n].bytes
			n++
		}
		if err := s.send(ctx, work, session, sending[:n], time.Now()); err != nil {
			return err
		}
		sending = sending[n:]
	}
	return nil
}

// send sends units in one transaction. If the ledger refuses one of them, it sends halves
// until that one is alone. Other errors are retried until ctx ends or the store was
// unreachable for a minute, which is safe after an unknown outcome because the dedupe keys
// stay the same. A store that is reachable but takes no messages (read-only, full, or
// without the queue) would not take them from another process either. They are held until
// it does, because brokers count how often a message is returned and drop it in the end.
// Once the session has ended, the broker has the messages back: those without a dedupe key
// are not sent, because they would be stored twice.
func (s *Source) send(ctx, work context.Context, session Session, units []*unit, begun time.Time) error {
	messages := s.messages(units)
	for pause := firstPause; len(messages) > 0; pause = min(2*pause, longPause) {
		sent, err := s.ledger.Send(work, messages...)
		if err == nil {
			s.reportSending(nil)
			s.compare(units, sent)
			break
		}
		if refused(err) {
			if len(units) == 1 {
				units[0].Err = err
				return nil
			}
			half := len(units) / 2
			if err := s.send(ctx, work, session, units[:half], begun); err != nil {
				return err
			}
			return s.send(ctx, work, session, units[half:], time.Now())
		}
		s.newest = 0 // after a failover the store may assign lower ids
		s.reportSending(err)
		if ctx.Err() == nil && time.Since(begun) > s.patience && s.capacity.reached(work) {
			begun = time.Now()
		}
		if !session.Use() {
			units = slices.DeleteFunc(slices.Clone(units), (*unit).unknown)
			messages = s.messages(units)
		}
		if ctx.Err() != nil || len(messages) == 0 || time.Since(begun) > s.patience {
			s.capacity.returned = true
			return fmt.Errorf("sending the messages to the database: %w", err)
		}
		wait(ctx, pause)
	}
	s.capacity.sent += int64(len(messages))
	for _, u := range units {
		u.stored = true
	}
	return nil
}

// messages returns the messages of units.
func (s *Source) messages(units []*unit) (messages []posthaste.Message) {
	for _, u := range units {
		messages = append(messages, u.messages...)
	}
	return messages
}

// unknown reports that a message of the unit has no dedupe key.
func (u *unit) unknown() bool {
	return slices.ContainsFunc(u.messages, func(m posthaste.Message) bool { return m.DedupeKey == "" })
}

// compare marks the units that were duplicates: for a message whose dedupe key is in use, the
// ledger returns the id of the earlier message, and ids grow.
func (s *Source) compare(units []*unit, sent []posthaste.Sent) {
	before, seen := s.newest, make(map[posthaste.MessageID]bool, len(sent))
	for _, u := range units {
		if len(u.messages) > len(sent) {
			return // a ledger that returns no ids
		}
		known := 0
		for i := range u.messages {
			if id := sent[i].ID; u.messages[i].DedupeKey != "" {
				if id <= before || seen[id] {
					known++
				}
				seen[id] = true
				s.newest = max(s.newest, id)
			}
		}
		u.known = known > 0 && known == len(u.messages)
		sent = sent[len(u.messages):]
	}
}
