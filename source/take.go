package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	posthaste "github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/relay"
)

// maxBytes is about how many bytes of payload one send carries.
const maxBytes = 8 << 20

// unit is one message of the broker, and what is sent of it: all or nothing.
type unit struct {
	Arrival
	messages []posthaste.Message
	bytes    int
	stored   bool // its messages are committed
	known    bool // all of them were there already
}

// take takes a batch in: sends, acknowledges, and puts aside what was refused. With an
// error the session shall not be used again; what was stored is acknowledged if that
// is still possible.
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
	e.Known = s.tellKnown(units)

	stored := make([]Arrival, 0, len(units))
	for i := range units {
		if units[i].stored {
			stored = append(stored, units[i].Arrival)
		}
	}
	acknowledging := time.Now()
	if len(stored) > 0 {
		if err := session.Acknowledge(work, stored); err != nil {
			return errors.Join(fmt.Errorf("acknowledging %d messages, which may come again: %w", len(stored), err), failed)
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

// tellKnown counts the units that were in the queue already, and logs which: where it
// is not for a broker that delivers again, two senders give the same id.
func (s *Source) tellKnown(units []unit) (count int) {
	const most = 10
	var ids []string
	for i := range units {
		if !units[i].known {
			continue
		}
		if count++; count <= most {
			ids = append(ids, units[i].Message.DedupeKey)
		}
	}
	if count > 0 {
		s.Logger.Info("messages were in the queue already by their ids, and are not stored again", "broker", s.broker.Address(), "count", count, "ids", ids)
	}
	return count
}

// refuse puts a message aside, and acknowledges it then.
func (s *Source) refuse(ctx context.Context, session Session, u *unit) error {
	reason := u.Err.Error()
	if len(reason) > 1000 {
		reason = reason[:1000]
	}
	headers := map[string]string{HeaderRefused: reason, HeaderRefusedCode: string(posthaste.CodeOf(u.Err))}
	if err := session.Refuse(ctx, u.Arrival, headers); err != nil {
		return fmt.Errorf("a message was refused (%s) and cannot be put aside: %w", reason, err)
	}
	s.Logger.Error("a message was refused, and put aside at the broker", "broker", s.broker.Address(), "id", u.Message.DedupeKey, "error", reason)
	if err := session.Acknowledge(ctx, []Arrival{u.Arrival}); err != nil {
		return fmt.Errorf("acknowledging a message that was put aside, which may come again: %w", err)
	}
	return nil
}

// unpack says what is sent of a message of the broker.
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
			u.Err = posthaste.Invalidf("queue", "message %d of %d that were unpacked is for queue %q, and this source takes them into %q", i+1, len(u.messages), m.Queue, s.Queue)
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

// unpacked calls Unpack.
func (s *Source) unpacked(ctx context.Context, m posthaste.Message) (messages []posthaste.Message, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = posthaste.Invalidf("payload", "unpacking it: panic: %v", p)
		}
	}()
	if messages, err = s.Unpack(ctx, m); err != nil {
		return nil, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "payload", Message: "unpacking it: " + err.Error(), Cause: err}
	}
	return messages, nil
}

// store sends units, and says of each that it is stored, or in Err why it is refused.
// The rest, after an error, is neither.
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

// send sends units in one transaction; where one of them is refused, in halves, until
// it is alone. What fails otherwise is tried again, until ctx ends, or the store was not
// reached for a minute. That is safe also where the outcome is unknown, for their
// dedupe keys are the same. A store that can be reached and does not take them, as one
// that is read-only, full, or without the queue, would take them from nobody else: they
// are held until it does, for brokers count how often a message is given back, and drop
// it in the end. Once the session has ended the broker has them back: what has no dedupe
// key would be stored again when it comes again, and is let go.
func (s *Source) send(ctx, work context.Context, session Session, units []*unit, begun time.Time) error {
	messages := s.messages(units)
	for pause := firstPause; len(messages) > 0; pause = min(2*pause, longPause) {
		ids, err := s.ledger.Send(work, messages...)
		if err == nil {
			s.told(nil)
			s.compare(units, ids)
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
		s.newest = 0 // a store that is another one now may have begun to count lower
		s.told(err)
		if ctx.Err() == nil && time.Since(begun) > s.patience && s.room.reached(work) {
			begun = time.Now()
		}
		if !session.Use() {
			units = slices.DeleteFunc(slices.Clone(units), (*unit).unknown)
			messages = s.messages(units)
		}
		if ctx.Err() != nil || len(messages) == 0 || time.Since(begun) > s.patience {
			s.room.doubted = true
			return fmt.Errorf("the database does not take the messages: %w", err)
		}
		wait(ctx, pause)
	}
	s.room.sent += int64(len(messages))
	for _, u := range units {
		u.stored = true
	}
	return nil
}

// messages are those of units.
func (s *Source) messages(units []*unit) (messages []posthaste.Message) {
	for _, u := range units {
		messages = append(messages, u.messages...)
	}
	return messages
}

// unknown says that not all of a unit would be known again.
func (u *unit) unknown() bool {
	return slices.ContainsFunc(u.messages, func(m posthaste.Message) bool { return m.DedupeKey == "" })
}

// compare finds the units that were in the queue already: of a message whose dedupe key
// is in use the ledger answers the earlier one's id, and ids grow.
func (s *Source) compare(units []*unit, ids []posthaste.MessageID) {
	before, seen := s.newest, make(map[posthaste.MessageID]bool, len(ids))
	for _, u := range units {
		if len(u.messages) > len(ids) {
			return // a ledger that answers no ids
		}
		known := 0
		for i := range u.messages {
			if id := ids[i]; u.messages[i].DedupeKey != "" {
				if id <= before || seen[id] {
					known++
				}
				seen[id] = true
				s.newest = max(s.newest, id)
			}
		}
		u.known = known > 0 && known == len(u.messages)
		ids = ids[len(u.messages):]
	}
}
