//go:build unix

package chaos

import (
	"context"
	"encoding/json"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
	"github.com/posthaste-mq/posthaste/internal/catcher"
	"github.com/posthaste-mq/posthaste/internal/history"
	"github.com/posthaste-mq/posthaste/sink/smtp"
)

// asMail is a mail with a payload as its text.
func asMail(token string, payload []byte) email.Email {
	return email.Email{From: "rig@example.com", To: []string{"reader@example.com"}, Subject: token, Text: string(payload)}
}

// mailer delivers mails as it is shipped, and records each before and after.
type mailer struct {
	*smtp.Sink
	r *history.Recorder
}

// Deliver implements [posthaste.Sink], for one delivery at a time. Between the
// mail and its settling it takes a while, in which it can be killed.
func (m mailer) Deliver(ctx context.Context, batch []posthaste.RawDelivery) []posthaste.SinkResult {
	d := &batch[0]
	var mail email.Email
	err := json.Unmarshal(d.Payload, &mail)
	s, whole := arrived(m.r, d.MessageID, d.Attempt, d.Alone, []byte(mail.Text))
	if err != nil || !whole {
		return []posthaste.SinkResult{{Err: posthaste.Permanent(errDamaged)}}
	}
	var results []posthaste.SinkResult
	if fails(s.content, d.Attempt) {
		results = []posthaste.SinkResult{{Err: errOnPurpose}}
	} else {
		results = m.Sink.Deliver(ctx, batch)
	}
	time.Sleep(work(s.content, false))
	s.left(m.r, results[0].Err)
	return results
}

// mailServer starts the server that mails are delivered to. It outlives faults,
// so that what it has is what was mailed.
func mailServer() (*catcher.Catcher, error) {
	return catcher.Start(catcher.Config{MaxMails: 1 << 30, MaxBytes: 1 << 40})
}

// mailed records what the server has.
func mailed(c *catcher.Catcher, r *history.Recorder) {
	for _, m := range c.Mails() {
		came(r, []byte(m.Text))
	}
}
