package sidekiq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
)

// Options say what is taken over and where it goes.
type Options struct {
	// Layout is "sidekiq" (the default) or "jiggler": whose keys these are.
	Layout string
	// Namespace is what all keys begin with, before a colon, where there is one.
	Namespace string
	// Queue takes all jobs; where it is empty, each goes to the queue of its own
	// queue's name, or what Queues has for that.
	Queue  string
	Queues map[string]string
	// Dead is the queue whose dead letters the dead jobs become: one that nobody else
	// sends to or receives from, empty, at least once, not paused and without limits.
	// Where it is not given they stay where they are.
	Dead string
	// Keep leaves the jobs where they are.
	Keep bool
	// Batch is how many jobs go at a time, 1 to 1000; 500 unless given.
	Batch int
	// DryRun counts only.
	DryRun bool
	// Progress is told how many jobs were taken. It may be nil.
	Progress func(jobs int)

	patience time.Duration // how long bury waits with nothing to do; 6 leases unless given
}

// Report is what an import did.
type Report struct {
	// Imported counts the jobs that were sent; known ones are among them, which an
	// import that was cut short had sent before.
	Imported int `json:"imported"`
	// Duplicates counts the jobs that became no message of their own, but are one with
	// a job that this import had sent: with the same jid, or the same in all where
	// they have none.
	Duplicates int `json:"duplicates"`
	// Pending counts the jobs that are in Redis when it ends, by where: of queues,
	// schedule, retry and dead.
	Pending map[string]int64 `json:"pending"`
	// Dead counts the dead letters that were made.
	Dead int `json:"dead"`
	// Refused are jobs that became no messages; they stay where they are.
	Refused []Refusal `json:"refused"`
	DryRun  bool      `json:"dry_run"`
}

// Refusal is a job that became no message, and why.
type Refusal struct {
	JID   string `json:"jid,omitempty"`
	In    string `json:"in"`
	Error string `json:"error"`
}

// maxRefused ends an import: so many refusals are no accident.
const maxRefused = 1000

type importer struct {
	Options
	from   goredis.UniversalClient
	to     posthaste.Engine
	report *Report
	sent   map[posthaste.MessageID]struct{} // by this import
}

// Import takes all jobs over, oldest first: it sends a batch, and removes from Redis
// what was sent. It may be killed at any moment and run again within a week: what was
// sent already is known by its jid. The report is valid with an error, too.
func Import(ctx context.Context, from goredis.UniversalClient, to posthaste.Engine, o Options) (Report, error) {
	o.Batch, o.patience = cmp.Or(o.Batch, 500), cmp.Or(o.patience, 6*buryLease)
	r := Report{Pending: map[string]int64{}, Refused: []Refusal{}, DryRun: o.DryRun}
	i := &importer{Options: o, from: from, to: to, report: &r, sent: map[posthaste.MessageID]struct{}{}}
	err := i.run(ctx)
	return r, err
}

func (i *importer) run(ctx context.Context) error {
	places, err := i.places(ctx)
	if err != nil {
		return unreachable(err)
	}
	if i.Dead != "" {
		if err := i.mayBury(ctx); err != nil {
			return err
		}
	}
	if !i.DryRun {
		for _, w := range places {
			if w.set == "dead" && i.Dead == "" {
				continue
			}
			if err := i.take(ctx, w); err != nil {
				return err
			}
		}
		if i.Dead != "" {
			if err := i.bury(ctx); err != nil {
				return err
			}
		}
	}
	for _, w := range places {
		n, err := i.count(ctx, w)
		if err != nil {
			return unreachable(err)
		}
		i.report.Pending[w.set] += n
	}
	return nil
}

func (i *importer) key(name string) string {
	if i.Namespace != "" {
		return i.Namespace + ":" + name
	}
	return name
}

// places are where jobs are.
func (i *importer) places(ctx context.Context) (all []where, err error) {
	if i.Layout == "jiggler" {
		return i.jigglers(ctx)
	}
	queues, err := i.from.SMembers(ctx, i.key("queues")).Result()
	if err != nil {
		return nil, err
	}
	slices.Sort(queues)
	for _, q := range queues {
		all = append(all, where{key: i.key("queue:" + q), set: "queue", queue: q})
	}
	for _, set := range []string{"retry", "schedule", "dead"} {
		all = append(all, where{key: i.key(set), set: set})
	}
	return all, nil
}

// jigglers are jiggler's: it keeps no list of its queues, so its Redis is looked
// through for them. What processes had in hand is in lists of their own.
func (i *importer) jigglers(ctx context.Context) (all []where, err error) {
	prefix := i.key("jiggler:list:")
	names := map[string]string{}
	for cursor, first := uint64(0), true; first || cursor != 0; first = false {
		var keys []string
		if keys, cursor, err = i.from.Scan(ctx, cursor, prefix+"*", 1000).Result(); err != nil {
			return nil, err
		}
		for _, key := range keys {
			names[key], _, _ = strings.Cut(strings.TrimPrefix(key, prefix), ":in_progress:")
		}
	}
	for key, queue := range names {
		all = append(all, where{key: key, set: "queue", queue: queue})
	}
	slices.SortFunc(all, func(a, b where) int { return cmp.Compare(a.key, b.key) })
	for name, set := range map[string]string{"retries": "retry", "scheduled": "schedule", "dead": "dead"} {
		all = append(all, where{key: i.key("jiggler:set:" + name), set: set})
	}
	return all, nil
}

func (i *importer) count(ctx context.Context, w where) (int64, error) {
	if w.set == "queue" {
		return i.from.LLen(ctx, w.key).Result()
	}
	return i.from.ZCard(ctx, w.key).Result()
}

// page reads jobs, oldest first, but for those that stay. Both push queued ones to
// the front of a list.
func (i *importer) page(ctx context.Context, w where, stay int64) (all []goredis.Z, err error) {
	n := int64(i.Batch)
	if w.set != "queue" {
		return i.from.ZRangeWithScores(ctx, w.key, stay, stay+n-1).Result()
	}
	texts, err := i.from.LRange(ctx, w.key, -stay-n, -stay-1).Result()
	slices.Reverse(texts)
	for _, text := range texts {
		all = append(all, goredis.Z{Member: text})
	}
	return all, err
}

// take takes the jobs of one place.
func (i *importer) take(ctx context.Context, w where) error {
	for stay := int64(0); ; {
		jobs, err := i.page(ctx, w, stay)
		if err != nil {
			return unreachable(err)
		}
		if len(jobs) == 0 {
			return nil
		}
		byQueue, texts := map[string][]posthaste.Message{}, map[string][]string{}
		for _, z := range jobs {
			text, _ := z.Member.(string)
			m, err := message(text, w, z.Score, i.Layout == "jiggler")
			if err == nil {
				err = i.target(&m, w)
			}
			if err == nil {
				err = m.Check()
			}
			if err != nil {
				i.refuse(w, m.Reference, err)
				stay++
				continue
			}
			byQueue[m.Queue], texts[m.Queue] = append(byQueue[m.Queue], m), append(texts[m.Queue], text)
		}
		for queue, messages := range byQueue {
			sent, err := i.send(ctx, w, messages)
			if err != nil {
				return err
			}
			var gone []string
			for n, ok := range sent {
				if ok && !i.Keep {
					gone = append(gone, texts[queue][n])
				} else {
					stay++
				}
			}
			if err := i.remove(ctx, w, gone); err != nil {
				return unreachable(err)
			}
		}
		if len(i.report.Refused) >= maxRefused {
			return &posthaste.Error{Code: posthaste.Refused, Message: fmt.Sprintf("%d jobs are refused, the last with: %s", len(i.report.Refused), i.report.Refused[len(i.report.Refused)-1].Error),
				Hint: "see whether their queues are there and take payloads of that size, then run it again"}
		}
	}
}

// target says where a message goes.
func (i *importer) target(m *posthaste.Message, w where) error {
	if w.set == "dead" {
		m.Queue = i.Dead
		return nil
	}
	if mapped := i.Queues[m.Queue]; mapped != "" {
		m.Queue = mapped
	} else if i.Queue != "" {
		m.Queue = i.Queue
	}
	if m.Queue == i.Dead {
		return posthaste.Invalidf("dead", "queue %s is for the dead jobs alone, and this one is not dead: give another to --dead, or map this job's queue", i.Dead)
	}
	return nil
}

// send sends messages of one queue, and says of each whether it was sent.
func (i *importer) send(ctx context.Context, w where, messages []posthaste.Message) (sent []bool, err error) {
	sent = make([]bool, len(messages))
	ids, err := i.to.Send(ctx, messages...)
	if err != nil && !refusal(err) {
		return nil, err
	}
	n := 0
	for at := range messages {
		var id posthaste.MessageID
		if err == nil {
			id = ids[at]
		} else if one, err := i.to.Send(ctx, messages[at]); err == nil { // one of them is at fault
			id = one[0]
		} else if refusal(err) {
			i.refuse(w, messages[at].Reference, err)
			continue
		} else {
			return nil, err
		}
		sent[at] = true
		if _, again := i.sent[id]; again {
			i.report.Duplicates++
			continue
		}
		i.sent[id] = struct{}{}
		n++
	}
	i.report.Imported += n
	if i.Progress != nil {
		i.Progress(n)
	}
	return sent, nil
}

// refusal reports whether a job itself, or its queue, is at fault.
func refusal(err error) bool {
	code := posthaste.CodeOf(err)
	return code == posthaste.Invalid || code == posthaste.TooLarge || code == posthaste.NotFound
}

func (i *importer) refuse(w where, jid string, err error) {
	i.report.Refused = append(i.report.Refused, Refusal{JID: jid, In: w.key, Error: err.Error()})
}

// remove removes jobs that were sent. They are at the end of a list, where LREM looks
// first.
func (i *importer) remove(ctx context.Context, w where, texts []string) error {
	if len(texts) == 0 {
		return nil
	}
	_, err := i.from.Pipelined(ctx, func(p goredis.Pipeliner) error {
		for _, text := range texts {
			if w.set == "queue" {
				p.LRem(ctx, w.key, -1, text)
			} else {
				p.ZRem(ctx, w.key, text)
			}
		}
		return nil
	})
	return err
}

// unreachable says what happened to the Redis that is read.
func unreachable(err error) error {
	var said goredis.Error
	if err == nil || errors.As(err, &said) && !strings.HasPrefix(err.Error(), "LOADING") || errors.Is(err, context.Canceled) {
		return err
	}
	return &posthaste.Error{Code: posthaste.Unavailable, Field: "from", Message: "the Redis with the jobs cannot be read: " + err.Error(),
		Hint: "check that it runs and that --from is right, then run it again: what was sent is not sent twice", Cause: err}
}
