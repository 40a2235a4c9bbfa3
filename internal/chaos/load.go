//go:build unix

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste/email"
	"github.com/posthaste-mq/posthaste/internal/history"
)

// task is the task of a child.
type task struct {
	Role   string
	Name   string // of its history, and of its connections
	Dir    string // of the histories
	Engine string
	URL    string   // of the store, through the proxy
	Server string   // of the HTTP API
	Queues []string // to receive from
	Mix    []string // to send to, repeated by weight
	Seed   uint64
	Lease  time.Duration
	Rate   float64 // messages per second, of a sender
}

// content is a message's payload: the sender's token, and a filling derived from it, so that a
// receiver detects damage.
type content struct {
	Token   string `json:"token"`
	Part    int    `json:"part"`
	Filling string `json:"filling"`
}

func newContent(token string, part int) content {
	return content{token, part, filling(token, part)}
}

// filling is up to about 2 kB, mostly much less.
func filling(token string, part int) string {
	h := hash(token, part)
	return strings.Repeat(fmt.Sprintf("%016x", h), int(h%8)*int(h%16))
}

func hash(token string, part int) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s.%d", token, part)
	return h.Sum64()
}

// parse reads a payload and describes its fault, if any.
func parse(payload []byte) (c content, fault string) {
	if err := json.Unmarshal(payload, &c); err != nil {
		return c, err.Error()
	}
	if want := filling(c.Token, c.Part); c.Filling != want {
		return c, fmt.Sprintf("%d bytes of filling that are not the %d sent", len(c.Filling), len(want))
	}
	return c, ""
}

// asMail returns a mail with a payload as its text.
func asMail(token string, payload []byte) email.Email {
	return email.Email{From: "rig@example.com", To: []string{"reader@example.com"}, Subject: token, Text: string(payload)}
}

// plan is what a sender is about to do.
type plan struct {
	token, queue, key string
	dedupe            string // the dedupe key
	payloads          []json.RawMessage
	delay             time.Duration // duration of the delay
	rollBack          bool          // at the end, if it has a transaction
}

// planner makes the plans of one sequence of sends. It is not safe for concurrent use.
type planner struct {
	r      *history.Recorder
	name   string
	random *rand.Rand
	queues []string
	n      int
	keys   [4]int // how often each key was changed
	last   int    // the previous plan's key
	rate   float64
	delays bool // whether some messages are delayed
}

func newPlanner(t task, r *history.Recorder, line int) *planner {
	name := fmt.Sprintf("%s/%d", t.Name, line)
	return &planner{r: r, name: name, random: rand.New(rand.NewPCG(t.Seed, hash(name, line))), queues: t.Mix, rate: t.Rate,
		delays: t.Role != roleSQLSender}
}

// next makes a plan and records it as an intent.
func (p *planner) next(most int) plan {
	p.n++
	d := plan{token: fmt.Sprintf("%s/%d", p.name, p.n), queue: p.queues[p.random.IntN(len(p.queues))], rollBack: p.random.IntN(10) == 0}
	if d.queue == Ordered {
		p.last = p.random.IntN(len(p.keys))
		d.key = fmt.Sprintf("%s.%d.%d", p.name, p.last, p.keys[p.last])
	}
	if d.queue == Plain && p.delays && p.random.IntN(10) == 0 {
		d.delay = time.Duration(p.random.IntN(1500)) * time.Millisecond
	}
	n := 1
	if p.random.IntN(3) == 0 {
		n += p.random.IntN(most)
	}
	// Large batches to the queue with limits, or of one key, would take longer than a run.
	if p.random.IntN(300) == 0 && d.queue != Limited {
		n = 300 // a large batch
		if d.queue == Ordered {
			n = 100
		}
	}
	if d.queue == Deduped { // senders at about the same time use the same key
		d.dedupe, n = fmt.Sprint("at-", int64(history.Now()/time.Second)), 1
	}
	for i := range n {
		payload, err := json.Marshal(newContent(d.token, i))
		if err == nil && d.queue == Mails {
			payload, err = json.Marshal(asMail(d.token, payload))
		}
		if err != nil {
			panic(err) // strings and numbers
		}
		d.payloads = append(d.payloads, payload)
	}
	p.r.Record(history.Event{Kind: Intent, Token: d.token, Queue: d.queue, Key: d.key + d.dedupe, Took: d.delay, Count: n})
	return d
}

// answered records the result of a plan, and waits according to the rate. A key whose last
// send may still be running is not used again, because a later one could overtake it.
func (p *planner) answered(ctx context.Context, d plan, e history.Event) {
	e.Token = d.token
	p.r.Record(e)
	if e.Kind == Unsure && d.queue == Ordered {
		p.keys[p.last]++
	}
	pause := p.random.ExpFloat64() * float64(len(d.payloads)) / p.rate
	if e.Kind == Refused {
		pause = max(pause, 0.05) // the store is unavailable
	}
	hold(ctx, time.Duration(min(pause, 2)*float64(time.Second)))
}

// work returns the duration of a handler for a content. Long ones are for workers, which keep
// their lease alive.
func work(c content, long bool) time.Duration {
	switch h := hash(c.Token, c.Part) / 7 % 1000; {
	case h < 5 && long:
		return time.Second
	case h < 20:
		return 100 * time.Millisecond
	default:
		return time.Duration(h%60) * time.Millisecond
	}
}

// fails reports whether a handler fails on purpose.
func fails(c content, attempt int) bool {
	return attempt == 1 && hash(c.Token, c.Part)/11%50 == 0
}

// dies reports whether a handler fails permanently on purpose, in the queues whose dead
// letters are replayed.
func dies(queue string, c content, attempt int) bool {
	return queue == Plain && attempt == 1 && hash(c.Token, c.Part)/13%100 == 0
}
