package dashboard

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/posthaste-mq/posthaste"
)

// word is a part of a queue that can be paused: a key or a kind.
type word struct {
	// name is key or kind, and value the one that is meant.
	name, value string
	what        func(queue, value string) posthaste.Pausable
	// fits says why messages of a queue cannot be paused by it; "" if they can.
	fits func(o posthaste.QueueOptions) string
}

var (
	keyWord = word{name: "key",
		what: func(queue, key string) posthaste.Pausable { return posthaste.OfKey{Queue: queue, Key: key} },
		fits: func(o posthaste.QueueOptions) string {
			if keyed(o) {
				return ""
			}
			return "does not look at keys"
		}}
	kindWord = word{name: "kind",
		what: func(queue, kind string) posthaste.Pausable { return posthaste.OfKind{Queue: queue, Kind: kind} },
		fits: func(o posthaste.QueueOptions) string {
			if keyed(o) {
				return "looks at keys, and its kinds cannot be paused"
			}
			return ""
		}}
)

func (d *dashboard) planPauseKey(p *page) (*plan, error) {
	return d.planWord(p, keyWord, true, "No message with this key is handed out until the key is resumed. Other keys continue.")
}

func (d *dashboard) planResumeKey(p *page) (*plan, error) {
	return d.planWord(p, keyWord, false, "Waiting messages with this key are handed out again.")
}

func (d *dashboard) planPauseKind(p *page) (*plan, error) {
	return d.planWord(p, kindWord, true, "No message of this kind is handed out until the kind is resumed: neither new ones nor retries. Messages that are handed out continue, and other kinds continue.")
}

func (d *dashboard) planResumeKind(p *page) (*plan, error) {
	return d.planWord(p, kindWord, false, "Waiting messages of this kind are handed out again.")
}

// planWord returns the plan of pausing or resuming a part of the queue in the path.
func (d *dashboard) planWord(p *page, w word, pause bool, effect string) (*plan, error) {
	w.value = p.query.Get(w.name)
	if w.value == "" || len(w.value) > posthaste.MaxWordBytes {
		return nil, posthaste.Invalidf(w.name, "A %s of 1 to %d bytes is required.", w.name, posthaste.MaxWordBytes)
	}
	q, err := p.findQueue()
	if err != nil {
		return nil, err
	}
	fault := w.fits(q.Options)
	if w.name == "key" && !d.can.Limits {
		fault = "cannot pause keys in this store"
	}
	if fault != "" {
		return nil, &posthaste.Error{Code: posthaste.CodeUnsupported, Field: w.name, Message: "Queue " + q.Name + " " + fault + ".", Hint: "Pause the whole queue."}
	}
	verb, done, change := "resume", "resumed", d.engine.Resume
	if pause {
		verb, done, change = "pause", "paused", d.engine.Pause
	}
	return p.planQueue(done, func(q *posthaste.QueueInfo) (*plan, func(context.Context) error) {
		body, _ := json.Marshal(map[string]string{w.name: w.value}) // always encodes
		title := strings.ToUpper(verb[:1]) + verb[1:]
		return &plan{Title: title + " a " + w.name + " of queue " + q.Name, Button: title, Fields: []field{{w.name, w.value}},
			Effects: []string{strings.ToUpper(w.name[:1]) + w.name[1:] + ": " + w.value, effect},
			CLI:     command("queue", verb+"-"+w.name, "--", q.Name, w.value), Curl: curl("POST", "/v1/queues/"+q.Name+"/"+w.name+"s/"+verb, string(body)), SQL: call(verb+"_"+w.name, q.Name, w.value),
		}, func(ctx context.Context) error { return change(ctx, w.what(q.Name, w.value)) }
	})
}
