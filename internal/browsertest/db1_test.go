package browsertest

import (
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
	"github.com/posthaste-mq/posthaste/internal/catcher"
)

// A person finds a failed e-mail by the reference that a customer names, reads what the mail
// server said, lets it be fixed, replays the mail, and sees without any further click that it was
// sent.
func TestDB1_FailedMail(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	full := s.mails.Inject(catcher.Fault{Stage: catcher.StageRcpt, Recipient: "ada@example.com", Times: -1, Code: 550, Text: "5.2.2 The mailbox of ada is full"})
	s.work()
	s.mail("grace@example.com", "Your order 4710", "order-4710")
	id := s.mail("ada@example.com", "Your order 4711", "order-4711")
	s.comes(id, posthaste.StateDead)

	b := newTab(t)
	s.enter(b)
	b.click("Find a message")
	b.types("order-4711")
	b.follow("Find")
	b.sees("Message "+id.String(), "order-4711", "dead", "Attempt 1", "550", "The mailbox of ada is full")

	full.Remove()
	s.must(s.engine.Pause(t.Context(), posthaste.OfQueue(email.Queue), posthaste.PauseOptions{})) // so that the page is open when the mail is sent
	b.follow("Replay")
	b.sees("The message is sent again under its id")
	b.follow("Replay")
	b.sees("Replayed 1 message.", "ready", "The queue is paused.")
	b.lacks("Attempt 2")
	s.must(s.engine.Resume(t.Context(), posthaste.OfQueue(email.Queue)))
	b.sees("Attempt 2", "done")
	b.lacks("The queue is paused.")
	if mails := s.mails.Mails(); len(mails) != 2 || mails[1].Subject != "Your order 4711" {
		t.Errorf("the mail server has %d mails", len(mails))
	}
}
