package smtp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
)

// maxTransaction is the maximum number of recipients of one transaction, which every server
// accepts (RFC 5321, 4.5.3.1.8).
const maxTransaction = 100

// attempt is one attempt to deliver a mail to its remaining recipients.
type attempt struct {
	sink    *Sink
	number  int
	mail    *email.Email
	content []byte
	from    string
	all     []string
	receipt email.Receipt
	// tried are the recipients for which this attempt has recorded a result.
	tried map[string]bool
	// cause ended the attempt early, for errors.Is. Its text is in the answers.
	cause error
}

// pending returns the recipients to try now. Refused recipients are not tried again unless
// no others are left, or the mail was dead: then an operator has replayed it for them.
func (a *attempt) pending(story []posthaste.Attempt) []string {
	replayed := len(story) > 0 && story[len(story)-1].Outcome == posthaste.OutcomeDead
	var open, refused []string
	for _, r := range a.all {
		switch a.receipt.Recipients[r].Status {
		case email.Accepted:
		case email.Refused:
			refused = append(refused, r)
		default:
			open = append(open, r)
		}
	}
	if replayed || len(open) == 0 {
		return append(open, refused...)
	}
	return open
}

// run tries the recipients and records their results in the receipt.
func (a *attempt) run(ctx context.Context, recipients []string) {
	if len(recipients) == 0 {
		return
	}
	c, reused, err := a.sink.pool.get(ctx)
	if err != nil {
		a.failed(recipients, err)
		return
	}
	for queue := a.transactions(c, recipients); len(queue) > 0; {
		t := queue[0]
		queue = queue[1:]
		usable, err := a.transact(ctx, c, t)
		if err != nil && reused && t.untouched && ctx.Err() == nil {
			// The pooled connection was dead. The mail gets a new one within
			// the same attempt.
			if c, err = a.sink.pool.replace(ctx, c); err != nil {
				a.failed(a.untried(recipients), err)
				return
			}
			t.untouched = false
			usable, err = a.transact(ctx, c, t)
		}
		reused = false
		if err != nil {
			a.failed(t.open, err)
		}
		if !usable {
			a.sink.pool.put(c, false)
			a.failed(a.untried(recipients), fmt.Errorf("the connection to %s was lost", a.sink.target.address))
			return
		}
		queue = append(t.next(), queue...)
	}
	a.sink.pool.put(c, true)
}

// transaction is one MAIL command, its RCPTs and one DATA.
type transaction struct {
	recipients []string
	smtputf8   bool
	// untouched says that the server has not replied to anything yet.
	untouched bool
	// open are the recipients without a result.
	open []string
	// surplus are recipients that exceed the server's limit; it accepted as many as accepted.
	surplus  []string
	accepted int
}

// next returns transactions for the surplus, each with as many recipients as the server
// accepted. So each transaction makes progress, or has no surplus.
func (t *transaction) next() (list []*transaction) {
	for some := range slices.Chunk(t.surplus, max(1, t.accepted)) {
		list = append(list, &transaction{recipients: some, smtputf8: t.smtputf8})
	}
	return list
}

// transactions divides the recipients by the limits of the server. It refuses recipients that
// need SMTPUTF8 if the server does not support it.
func (a *attempt) transactions(c *conn, recipients []string) []*transaction {
	var plain, international []string
	whole := a.mail.NeedsSMTPUTF8()
	for _, r := range recipients {
		if whole || email.AddressNeedsSMTPUTF8(r) {
			international = append(international, r)
		} else {
			plain = append(plain, r)
		}
	}
	if !c.smtputf8 {
		for _, r := range international {
			a.record(r, email.Refused, reply{text: oneLine(a.whyUTF8(r))}, false)
		}
		international = nil
	}
	size := maxTransaction
	if c.maxRecipients > 0 {
		size = min(size, c.maxRecipients)
	}
	var list []*transaction
	for _, group := range []struct {
		recipients []string
		smtputf8   bool
	}{{plain, false}, {international, true}} {
		for rest := group.recipients; len(rest) > 0; {
			n := min(size, len(rest))
			list = append(list, &transaction{recipients: rest[:n], smtputf8: group.smtputf8, untouched: true})
			rest = rest[n:]
		}
	}
	return list
}

// whyUTF8 returns an error text with the address that the server cannot handle.
func (a *attempt) whyUTF8(recipient string) string {
	field, address := a.mail.SMTPUTF8Address()
	if field == "" {
		field, address = "bcc", recipient
	}
	return fmt.Sprintf("%s %s needs SMTPUTF8, which %s does not offer", field, address, a.sink.target.address)
}

// transact runs one transaction. usable says that the connection can be reused, which is
// false after an error. Then t.open are the recipients without a result.
func (a *attempt) transact(ctx context.Context, c *conn, t *transaction) (usable bool, err error) {
	stop := c.wire.cutWith(ctx)
	defer func() {
		if !stop() {
			usable = false // the connection was cut
		}
	}()
	t.open = t.recipients
	if c.maxSize > 0 && len(a.content) > c.maxSize {
		a.answered(t.open, reply{text: fmt.Sprintf("the server accepts mails of at most %d bytes, but this one has %d", c.maxSize, len(a.content))}, email.Refused)
		return true, nil
	}
	r, err := c.command(c.target.CommandTimeout, "MAIL FROM:<%s>%s", a.from, a.mailParameters(c, t))
	if err != nil {
		return false, a.wireError(ctx, "MAIL", err, c.target.CommandTimeout)
	}
	if r.closing() && t.untouched {
		return false, &replyError{"MAIL", r}
	}
	t.untouched = false
	if !r.ok() {
		return a.refusedWhole(c, t, r)
	}
	accepted, usable, err := a.rcpt(ctx, c, t)
	if err != nil || !usable {
		return false, err
	}
	t.open = accepted
	if len(accepted) == 0 {
		return a.reset(c), nil
	}
	return a.data(ctx, c, t)
}

// mailParameters returns the parameters that the server announced and the mail needs.
func (a *attempt) mailParameters(c *conn, t *transaction) (p string) {
	if c.size {
		p += fmt.Sprintf(" SIZE=%d", len(a.content))
	}
	if t.smtputf8 {
		p += " SMTPUTF8"
		if c.eightBitMIME {
			p += " BODY=8BITMIME"
		}
	}
	return p
}

// rcpt sends the recipients and returns those that the server accepted.
func (a *attempt) rcpt(ctx context.Context, c *conn, t *transaction) (accepted []string, usable bool, err error) {
	answers := c.rcpt(t.recipients)
	for i, recipient := range t.recipients {
		r, err := answers(i)
		if err != nil {
			return nil, false, a.wireError(ctx, "RCPT", err, c.target.CommandTimeout)
		}
		switch {
		case r.ok():
			accepted = append(accepted, recipient)
		case r.tooMany() && len(accepted) > 0:
			t.surplus, t.accepted = append(t.surplus, recipient), len(accepted)
		default:
			a.answered([]string{recipient}, r, r.rcptStatus())
		}
		t.open = slices.Concat(accepted, t.recipients[i+1:])
		if r.closing() {
			a.answered(t.open, r, email.Deferred)
			return nil, false, nil
		}
	}
	return accepted, true, nil
}

// data sends the content for the recipients in t.open.
func (a *attempt) data(ctx context.Context, c *conn, t *transaction) (usable bool, err error) {
	r, err := c.command(c.target.CommandTimeout, "DATA")
	if err != nil {
		return false, a.wireError(ctx, "DATA", err, c.target.CommandTimeout)
	}
	if r.code != 354 {
		if r.ok() {
			return false, fmt.Errorf("DATA: unexpected reply %s", r)
		}
		return a.refusedWhole(c, t, r)
	}
	r, handedOver, err := c.data(a.content)
	switch {
	case err != nil && handedOver:
		err = a.wireError(ctx, "after the whole mail was sent, so it may have been delivered", err, c.target.DataTimeout)
		a.cause = err
		for _, recipient := range t.open {
			a.record(recipient, email.Deferred, reply{text: oneLine(err.Error())}, true)
		}
		return false, nil
	case err != nil:
		return false, a.wireError(ctx, "while the mail was being sent", err, c.target.DataTimeout)
	}
	a.answered(t.open, r, r.status())
	return !r.closing(), nil
}

// refusedWhole records a reply for all remaining recipients.
func (a *attempt) refusedWhole(c *conn, t *transaction, r reply) (usable bool, err error) {
	a.answered(t.open, r, r.status())
	if r.closing() {
		return false, nil
	}
	return a.reset(c), nil
}

// reset ends a transaction that did not reach DATA.
func (a *attempt) reset(c *conn) (usable bool) {
	r, err := c.command(c.target.CommandTimeout, "RSET")
	return err == nil && r.ok()
}

func (a *attempt) wireError(ctx context.Context, where string, err error, limit time.Duration) error {
	return fmt.Errorf("%s: %w", where, explain(ctx, err, limit))
}

func (a *attempt) answered(recipients []string, r reply, status email.AnswerStatus) {
	for _, recipient := range recipients {
		a.record(recipient, status, r, false)
	}
}

// failed records an error for recipients without a reply.
func (a *attempt) failed(recipients []string, err error) {
	if len(recipients) > 0 && a.cause == nil {
		a.cause = err
	}
	answer := reply{text: oneLine(err.Error())}
	var said *replyError
	if errors.As(err, &said) {
		answer = said.reply
		answer.text = oneLine(said.step + ": " + answer.words())
	}
	a.answered(recipients, answer, email.Deferred)
}

// untried returns the recipients for which this attempt has recorded no result.
func (a *attempt) untried(recipients []string) (list []string) {
	for _, r := range recipients {
		if !a.tried[r] {
			list = append(list, r)
		}
	}
	return list
}

func (a *attempt) record(recipient string, status email.AnswerStatus, r reply, unsure bool) {
	a.tried[recipient] = true
	// Unsure is final: a recipient with a later answer may have the mail twice.
	unsure = unsure || a.receipt.Recipients[recipient].Unsure
	a.receipt.Recipients[recipient] = email.Answer{
		Status: status, Code: r.code, Enhanced: r.enhanced, Text: r.text, Unsure: unsure,
		Attempt: a.number, At: time.Now().UTC().Truncate(time.Millisecond),
	}
}
