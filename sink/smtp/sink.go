package smtp

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
)

// maxTerms is the maximum number of terms of a message.
const maxTerms = 1000

// Sink delivers mails to an SMTP server. It implements [posthaste.Sink].
type Sink struct {
	target *target
	pool   *pool
}

var _ posthaste.Sink = (*Sink)(nil)

// New validates the configuration and returns a sink, which connects at its first delivery.
// Errors are *posthaste.Error with field "smtp_url" and contain no password.
func New(cfg Config) (*Sink, error) {
	t, err := parse(cfg)
	if err != nil {
		return nil, err
	}
	return &Sink{target: t, pool: newPool(t)}, nil
}

// Server returns the server's address, "host:port".
func (s *Sink) Server() string { return s.target.address }

// Check connects, encrypts and authenticates as for a delivery, and ends the session without
// sending a mail.
func (s *Sink) Check(ctx context.Context) error {
	c, err := open(ctx, s.target)
	if err != nil {
		return err
	}
	c.quit()
	return nil
}

// Close closes the connections that are not in use. The others are closed when their mail is
// done. Later deliveries fail and can be retried. Close is idempotent.
func (s *Sink) Close() error {
	s.pool.close()
	return nil
}

// Deliver implements [posthaste.Sink]. It delivers each mail separately, as many at a time as
// there are connections. The receipt is an [email.Receipt].
func (s *Sink) Deliver(ctx context.Context, batch []posthaste.RawDelivery) []posthaste.SinkResult {
	results := make([]posthaste.SinkResult, len(batch))
	if len(batch) == 1 {
		results[0] = s.deliver(ctx, &batch[0])
		return results
	}
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(len(batch), s.target.Connections) {
		wg.Go(func() {
			for i := range next {
				results[i] = s.deliver(ctx, &batch[i])
			}
		})
	}
	for i := range batch {
		next <- i
	}
	close(next)
	wg.Wait()
	return results
}

// deliver makes one attempt at one mail.
func (s *Sink) deliver(ctx context.Context, d *posthaste.RawDelivery) posthaste.SinkResult {
	e, err := read(d)
	if err != nil {
		return posthaste.SinkResult{Err: posthaste.Permanent(err), Terms: terms(e)}
	}
	before := email.NewestReceipt(d.Story)
	identity := email.Identity{ID: d.MessageID, CreatedAt: d.CreatedAt, Date: date(d, e, before)}
	content, err := e.Compose(identity)
	if err != nil {
		return posthaste.SinkResult{Err: posthaste.Permanent(err), Terms: terms(e)}
	}
	a := &attempt{
		sink: s, number: d.Attempt, mail: e, content: content, from: sender(e), all: e.Recipients(),
		tried: map[string]bool{},
		receipt: email.Receipt{
			MessageID:  e.MessageIDHeader(identity),
			Date:       identity.Date,
			Server:     s.target.address,
			Recipients: map[string]email.Answer{},
		},
	}
	if before != nil {
		maps.Copy(a.receipt.Recipients, before.Recipients)
	}
	a.run(ctx, a.pending(d.Story))
	receipt, err := json.Marshal(a.receipt)
	if err != nil {
		// Cannot happen, because all of its text is valid. Without a receipt accepted
		// recipients would be forgotten, so it is an error.
		return posthaste.SinkResult{Err: posthaste.Permanent(fmt.Errorf("encoding the receipt: %w", err)), Terms: terms(e)}
	}
	return posthaste.SinkResult{Err: a.conclusion(), Receipt: receipt, Terms: terms(e)}
}

// terms returns the recipients, by which a mail that was sent by SQL can be found. Those of an
// invalid mail may not be addresses; the ones that cannot be terms are omitted.
func terms(e *email.Email) []string {
	if e == nil {
		return nil
	}
	found := slices.DeleteFunc(e.Terms(), func(t string) bool { return strings.ContainsRune(t, 0) || !utf8.ValidString(t) })
	return found[:min(len(found), maxTerms)]
}

// read decodes and validates the mail of a delivery, which is not validated before if it was
// sent by SQL. With an error it returns the mail as far as it could be decoded.
func read(d *posthaste.RawDelivery) (*email.Email, error) {
	if d.ContentType != "" {
		media, _, err := mime.ParseMediaType(d.ContentType)
		if err != nil || media != posthaste.ContentTypeJSON && !strings.HasSuffix(media, "+json") {
			return nil, posthaste.Invalidf("content_type", "content_type of a mail must be %s", posthaste.ContentTypeJSON)
		}
	}
	e, err := email.Parse(d.Payload)
	if err != nil {
		return nil, err
	}
	if err := e.Validate(); err != nil {
		return e, err
	}
	// The message's own send_at delays it. A send_at in the payload alone has no effect,
	// and the sender has to know. A message with a due time may have been rescheduled to
	// before its send_at. Not every engine reports the due times of messages with keys,
	// which may have been rescheduled, too.
	early := time.Until(e.SendAt) > clockTolerance
	if early && d.DueAt.IsZero() && d.Key == "" && d.Attempt == 1 && len(d.Story) == 0 {
		return e, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "send_at",
			Message: "send_at is set in the mail, but the message was not delayed",
			Hint:    "pass it to posthaste.send as an option as well: posthaste.send('emails', …, '{\"send_at\": …}')"}
	}
	return e, nil
}

// clockTolerance is how far this machine's clock may be behind the store's.
const clockTolerance = time.Minute

// staleDate is the delay between the creation and the first claim of a mail above which it
// counts as delayed, if nothing else is known.
const staleDate = time.Hour

// date returns the Date of the mail: when its message was sent or, if it was delayed, when it
// was first due. Retries and replays repeat it.
func date(d *posthaste.RawDelivery, e *email.Email, before *email.Receipt) time.Time {
	date := d.CreatedAt
	switch {
	case before != nil && !before.Date.IsZero():
		date = before.Date
	case len(d.Story) == 0:
		due := d.DueAt
		if due.IsZero() && time.Until(e.SendAt) <= clockTolerance {
			due = e.SendAt
		}
		if due.After(date) {
			date = due
		}
	default:
		// The first attempt left no receipt because its process died, and DueAt
		// belongs to this attempt. The story says when the first one began.
		first := d.Story[0].ClaimedAt
		if e.SendAt.After(date) && !e.SendAt.After(first) {
			date = e.SendAt
		} else if first.Sub(date) > staleDate {
			date = first
		}
	}
	return date.UTC().Truncate(time.Second)
}

// sender returns the envelope sender of a valid mail.
func sender(e *email.Email) string {
	a, err := email.ParseAddress(e.From)
	if err != nil {
		return "" // cannot happen: Validate has parsed it
	}
	return a.Envelope()
}
