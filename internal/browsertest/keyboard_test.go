package browsertest

import (
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/catcher"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// reach presses the tab key until a control has the focus. Each control on the way must be visible,
// and show that it has the focus.
func (b *tab) reach(name string) {
	b.Helper()
	var got struct {
		Is    bool
		Fault string
	}
	for range 300 {
		b.types(kb.Tab)
		b.answer(`(e => {
			const r = e.getBoundingClientRect(), style = getComputedStyle(e);
			const shown = e === document.body || r.width > 0 && r.bottom > 0 && r.right > 0 && r.top < innerHeight && r.left < innerWidth;
			const ring = e === document.body || style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1;
			return {Is: e === `+named+"("+quoted(name)+`), Fault: shown && ring ? "" : e.outerHTML.slice(0, 200)};
		})(document.activeElement)`, &got)
		if got.Fault != "" {
			b.Errorf("the focus cannot be seen on %s", got.Fault)
		}
		if got.Is {
			return
		}
	}
	b.Fatalf("the tab key does not lead to %q", name)
}

// A person without a mouse finds a failed e-mail and replays it, on a telephone's width as well.
func TestDB8_Keyboard(t *testing.T) {
	testrun.Nightly(t, "TestDB1_FailedMail does the same with a mouse")
	t.Parallel()
	s := newShop(t)
	full := s.mails.Inject(catcher.Fault{Stage: catcher.StageRcpt, Recipient: "ada@example.com", Times: -1, Code: 550, Text: "5.2.2 The mailbox of ada is full"})
	s.work()
	for _, size := range []screen{wide, narrow} {
		id := s.mail("ada@example.com", "Your order 4711", "order-4711")
		s.comes(id, posthaste.StateDead)
		b := newTab(t)
		b.look(size, light)
		b.open(s.url + "/")
		b.types(secret) // the field has the focus
		b.leaves(func() { b.types(kb.Enter) })

		b.reach("Skip to the content")
		b.reach("Find a message")
		b.types(id.String())
		b.leaves(func() { b.types(kb.Enter) })
		b.sees("Message "+id.String(), "dead", "The mailbox of ada is full")
		full.Remove()
		b.reach("Replay")
		b.leaves(func() { b.types(kb.Enter) })
		b.sees("The message is sent again under its id")
		b.reach("Replay")
		b.leaves(func() { b.types(kb.Enter) })
		b.sees("Replayed 1 message.", "Attempt 2", "done")

		b.reach("Overview")
		b.leaves(func() { b.types(kb.Enter) })
		b.reach("Pause updates")
		b.types(" ")
		b.sees("Resume updates")
		full = s.mails.Inject(catcher.Fault{Stage: catcher.StageRcpt, Recipient: "ada@example.com", Times: -1, Code: 550, Text: "5.2.2 The mailbox of ada is full"})
	}
}
