package dashboard

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

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
	if w.name == "key" && !d.can.Limits || w.name == "kind" && !d.can.PauseKinds {
		fault = "cannot pause " + w.name + "s in this store"
	}
	if fault != "" {
		return nil, &posthaste.Error{Code: posthaste.CodeUnsupported, Field: w.name, Message: "Queue " + q.Name + " " + fault + ".", Hint: "Pause the whole queue."}
	}
	verb, done := "resume", "resumed"
	var asked pausing
	if pause {
		verb, done = "pause", "paused"
		if asked, err = p.pausing(); err != nil {
			return nil, err
		}
	}
	return p.planQueue(done, func(q *posthaste.QueueInfo) (*plan, func(context.Context) error) {
		title := strings.ToUpper(verb[:1]) + verb[1:]
		made := &plan{Title: title + " a " + w.name + " of queue " + q.Name, Button: title, Fields: []field{{w.name, w.value}},
			Effects: []string{strings.ToUpper(w.name[:1]) + w.name[1:] + ": " + w.value, effect},
			CLI:     command(slices.Concat([]string{"queue", verb + "-" + w.name}, asked.flags(), []string{"--", q.Name, w.value})...),
			Curl:    curl("POST", "/v1/queues/"+q.Name+"/"+w.name+"s/"+verb, asked.body(w.name, w.value)), SQL: pauseCall(asked, verb+"_"+w.name, q.Name, w.value),
		}
		if !pause {
			return made, func(ctx context.Context) error { return d.engine.Resume(ctx, w.what(q.Name, w.value)) }
		}
		askPause(made, asked, p.r.Method == http.MethodGet)
		return made, func(ctx context.Context) error {
			return d.engine.Pause(ctx, w.what(q.Name, w.value), asked.PauseOptions)
		}
	})
}

// pausing reads the reason, and the end: a time until, or a duration for, which counts from now. The
// confirmation sends the time, so that it is the same.
func (p *page) pausing() (a pausing, err error) {
	a.Reason = p.text("reason")
	if a.Until, err = p.time("until"); err != nil {
		return a, err
	}
	if text := p.text("for"); text != "" {
		lasts, err := time.ParseDuration(text)
		if err != nil || lasts <= 0 {
			return a, posthaste.Invalidf("for", "The pause must last for a duration such as 30m or 4h, got %q.", text)
		}
		if !a.Until.IsZero() {
			return a, posthaste.Invalidf("until", "Choose how long the pause lasts, or enter the time when it ends, but not both.")
		}
		a.Until = time.Now().UTC().Add(lasts).Truncate(time.Second)
	}
	return a, a.Complete(time.Now())
}

// askPause adds the reason and the end to the confirmation of a pause, which asks for them if neither
// was given. shown says that the confirmation is shown now, and not sent.
func askPause(made *plan, a pausing, shown bool) {
	if a.PauseOptions == (posthaste.PauseOptions{}) {
		made.Pausing = &a
		made.Effects = append(made.Effects, "Without an end it is paused until someone resumes it.")
		return
	}
	if shown { // the confirmation sends both
		made.Fields = append(made.Fields, field{"reason", a.Reason}, field{"until", a.until()})
	}
	if a.Reason != "" {
		made.Effects = append(made.Effects, "Reason: "+a.Reason)
	}
	if a.Until.IsZero() {
		made.Effects = append(made.Effects, "The pause has no end.")
	} else {
		made.Effects = append(made.Effects, "The pause ends by itself at "+a.until()+fromNow(a.Until)+".")
	}
}

// pauseCall is [call] with the reason and the end.
func pauseCall(a pausing, function string, args ...string) string {
	text := strings.TrimSuffix(call(function, args...), ")")
	if a.Reason != "" {
		text += ", reason => " + sqlQuote(a.Reason)
	}
	if !a.Until.IsZero() {
		text += ", until => " + sqlQuote(a.until())
	}
	return text + ")"
}

// paused are pauses, by their things.
type paused map[posthaste.Pausable]posthaste.Pause

// paused returns the pauses of a queue and of all schedules. Viewers share them, unless
// there are so many pauses that the shared ones may lack some.
func (d *dashboard) paused(ctx context.Context, queue string) (paused, error) {
	s, err := d.snapshots.look(ctx)
	if err != nil {
		return nil, err
	}
	all := s.pauses
	if len(all) == maxPauses {
		all, err = d.engine.Pauses(ctx, posthaste.PauseFilter{Queue: queue, Limit: maxPauses})
	}
	by := paused{}
	for _, one := range all {
		by[one.What] = one
	}
	return by, err
}

// Of returns why something is paused, or nil. It is for templates.
func (b paused) Of(of, queue, name string) *posthaste.Pause {
	if one, ok := b[posthaste.NewPausable(of, queue, name)]; ok {
		return &one
	}
	return nil
}

// pauseRow is a pause with its links.
type pauseRow struct {
	posthaste.Pause
	Of, Queue, Name string
	Page, Resume    string
}

func pauseRows(p *page, all []posthaste.Pause) (rows []pauseRow) {
	for _, one := range all {
		row := pauseRow{Pause: one}
		row.Of, row.Queue, row.Name = posthaste.PausableNames(one.What)
		row.Page = p.link("/queues/" + row.Queue)
		switch row.Of {
		case "queue":
			row.Resume = p.link("/queues/" + row.Queue + "/resume")
		case "schedule":
			row.Page, row.Resume = p.link("/schedules"), p.link("/schedules/"+row.Name+"/resume")
		default:
			row.Resume = p.link("/queues/"+row.Queue+"/"+row.Of+"s/resume", row.Of, row.Name)
		}
		rows = append(rows, row)
	}
	return rows
}
