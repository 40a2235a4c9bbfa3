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

	posthaste "github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
)

// maxTerms bounds the terms of a message.
const maxTerms = 1000

// Sink delivers mails to an SMTP server. It implements [posthaste.Sink].
type Sink struct {
	target *target
	pool   *pool
}

var _ posthaste.Sink = (*Sink)(nil)

// New checks the configuration and returns a sink. It connects to nobody yet.
// Errors are *posthaste.Error with field "smtp_url" and hold no password.
func New(cfg Config) (*Sink, error) {
	t, err := parse(cfg)
	if err != nil {
		return nil, err
	}
	return &Sink{target: t, pool: newPool(t)}, nil
}

// Server returns the server's address, "host:port".
func (s *Sink) Server() string { return s.target.address }

// Close closes the connections that are not in use; the others are closed
// when their mail is done. Deliveries after it fail and can be retried. It
// may be called again.
func (s *Sink) Close() error {
	s.pool.close()
	return nil
}

// Deliver implements [posthaste.Sink]: each mail by itself, as many at a time
// as there are connections. The receipt is an [email.Receipt].
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
		// Cannot be: all of its text is valid. Without a receipt accepted
		// recipients would be forgotten, so this is told rather than hidden.
		return posthaste.SinkResult{Err: posthaste.Permanent(fmt.Errorf("the receipt cannot be encoded: %w", err)), Terms: terms(e)}
	}
	return posthaste.SinkResult{Err: a.conclusion(), Receipt: receipt, Terms: terms(e)}
}

// terms are the recipients, by whom a mail that was sent by SQL is not found
// otherwise. Of one that is no mail there are none, and of one with faults they
// may be no addresses: whatever cannot be a term is left out.
func terms(e *email.Email) []string {
	if e == nil {
		return nil
	}
	found := slices.DeleteFunc(e.Terms(), func(t string) bool { return strings.ContainsRune(t, 0) || !utf8.ValidString(t) })
	return found[:min(len(found), maxTerms)]
}

// read decodes and checks the mail of a delivery. It may have been sent by
// SQL, where nobody checked it. With an error the mail is there as far as it
// could be decoded.
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
	// A message is held back by its own send_at. In the payload alone it would be
	// ignored, and the sender has to know. A message with a due time may have been
	// rescheduled to before its send_at. Not every engine tells the due times of
	// messages with keys: there it may have been moved, too.
	early := time.Until(e.SendAt) > clockTolerance
	if early && d.DueAt.IsZero() && d.Key == "" && d.Attempt == 1 && len(d.Story) == 0 {
		return e, &posthaste.Error{Code: posthaste.CodeInvalid, Field: "send_at",
			Message: "send_at is in the mail, but the message was not held back for it",
			Hint:    "give it to posthaste.send as an option as well: posthaste.send('emails', …, '{\"send_at\": …}')"}
	}
	return e, nil
}

// clockTolerance is how far this machine's clock may be behind the store's.
const clockTolerance = time.Minute

// staleDate is how long after its creation a mail may first be handed out without being
// taken for one that was held back, if that is not known otherwise.
const staleDate = time.Hour

// date returns the Date of the mail: when its message was sent or, if that was
// held back, when it first fell due. Retries and replays repeat it.
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

// sender is the envelope's sender of a mail that was checked.
func sender(e *email.Email) string {
	a, err := email.ParseAddress(e.From)
	if err != nil {
		return "" // cannot be: Validate did the same
	}
	return a.Envelope()
}
