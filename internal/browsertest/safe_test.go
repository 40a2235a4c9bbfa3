package browsertest

import (
	"encoding/json"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/posthaste-mq/posthaste"
)

const script = `"><script>alert(1)</script><img src=x onerror=alert(2)>'` + "`" + `{{.}}javascript:alert(3)`

// Text of senders, handlers and operators is shown as text. A script in it opens no dialog, and
// the policy of the pages has nothing to block. tab fails the test if the browser says anything.
func TestDB5_ScriptsStayText(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.work()
	text, err := json.Marshal(map[string]string{script: "</pre>" + script})
	s.must(err)
	f := s.fill(words{kind: script, key: script, reference: script, term: script, header: script, payload: string(text),
		err: "</pre>" + script, worker: script, actor: script, recipient: "ada@example.com", subject: script})
	b := newTab(t)
	s.enter(b)
	shown := 0
	s.visit(b, []string{"/queues/orders", "/messages/" + f.dead.String(), "/messages/" + f.scheduled.String() + "/cancel", "/search?q=%3Cscript%3Ealert(1)%3C/script%3E"}, func(shape string) {
		var got struct{ Foreign, Shown bool }
		b.answer(`{Foreign: document.images.length > 0 || [...document.scripts].some(s => !s.nonce || !s.src), Shown: document.body.innerText.includes("<script>alert(1)</script>")}`, &got)
		if got.Foreign {
			b.Errorf("%s has an element of a message", shape)
		}
		if got.Shown {
			shown++
		}
	})
	if shown < 6 { // queue, message, messages, dead letters, workers, audit log
		t.Errorf("%d pages show the script", shown)
	}

	// So does what replaces a part of the page.
	b.open(s.url + "/messages/" + f.retrying.String())
	b.sees("retrying")
	_, err = s.engine.Cancel(t.Context(), f.retrying)
	s.must(err)
	b.sees("cancelled", "<script>alert(1)</script>")
}

// A number that no float64 can hold goes through a form into the store, and is shown as it is.
func TestDB6_BigNumbers(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	const payload = `{"n": 9007199254740993, "id": 18446744073709551615}`
	s.must(s.engine.CreateQueue(t.Context(), "orders", posthaste.QueueOptions{}))
	b := newTab(t)
	s.enter(b)
	b.open(s.url + "/queues/orders")
	b.follow("Send a test message")
	b.click("Payload")
	b.do(chromedp.Evaluate[chromedp.Void]("document.activeElement.select()"))
	b.types(payload)
	b.click("Reference")
	b.types("9007199254740993")
	b.follow("Send")
	b.sees("Sent.", `"n": 9007199254740993`, `"id": 18446744073709551615`, "9007199254740993\n")
	b.click("Find a message")
	b.types("9007199254740993")
	b.follow("Find")
	b.sees("Message 1", `"n": 9007199254740993`)
}
