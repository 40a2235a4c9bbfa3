package sidekiq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
)

// Options configures an import.
type Options struct {
	// Layout is "sidekiq" (the default) or "jiggler", the format of the keys.
	Layout string
	// Namespace is the prefix of all keys, before a colon, if there is one.
	Namespace string
	// Queue receives all jobs. If empty, each job goes to the queue with the name of its own
	// queue, or to the one that Queues maps it to.
	Queue  string
	Queues map[string]string
	// Dead is the queue whose dead letters the dead jobs become. It must be empty, at least
	// once, not paused and without limits, and no other program may send to it or receive from
	// it. If Dead is empty, the dead jobs stay in Redis.
	Dead string
	// Keep leaves the jobs in Redis.
	Keep bool
	// Batch is the maximum number of jobs per batch, 1 to 1000; 500 by default.
	Batch int
	// DryRun only counts.
	DryRun bool
	// Progress is called with the number of jobs. It may be nil.
	Progress func(jobs int)

	patience time.Duration // how long bury waits without progress; 6 leases by default
}

// Report is the result of an import.
type Report struct {
	// Imported counts the jobs that were sent, including those that an interrupted import had
	// sent before.
	Imported int `json:"imported"`
	// Duplicates counts the jobs that became no new message, because this import had sent an
	// equal job: one with the same jid, or without a jid, with the same content.
	Duplicates int `json:"duplicates"`
	// Pending counts the jobs in Redis at the end, by set: queues, schedule, retry and dead.
	Pending map[string]int64 `json:"pending"`
	// Dead counts the new dead letters.
	Dead int `json:"dead"`
	// Refused are jobs that became no messages; they stay in Redis.
	Refused []Refusal `json:"refused"`
	// Queues are the queues in Redis. Those of scheduled jobs and of jobs to be retried are
	// known only after the import.
	Queues []string `json:"queues"`
	// Unmatched are the names in [Options.Queues] that are not in Queues.
	Unmatched []string `json:"unmatched"`
	DryRun    bool     `json:"dry_run"`
}

// Refusal is a job that became no message, and the reason.
type Refusal struct {
	JID   string `json:"jid,omitempty"`
	In    string `json:"in"`
	Error string `json:"error"`
}

// maxRefused ends an import: so many rejections have a common cause.
const maxRefused = 1000

type importer struct {
	Options
	from   goredis.UniversalClient
	to     posthaste.Store
	report *Report
	sent   map[posthaste.MessageID]struct{} // by this import
	queues map[string]bool                  // of jobs
}

// Import imports all jobs, oldest first: it sends a batch, and removes the sent jobs from
// Redis. It may be killed at any time and run again within a week, because sent jobs are
// recognized by their jid. The report is valid even with an error.
func Import(ctx context.Context, from goredis.UniversalClient, to posthaste.Store, o Options) (Report, error) {
	o.Batch, o.patience = cmp.Or(o.Batch, 500), cmp.Or(o.patience, 6*buryLease)
	r := Report{Pending: map[string]int64{}, Refused: []Refusal{}, Unmatched: []string{}, DryRun: o.DryRun}
	i := &importer{Options: o, from: from, to: to, report: &r, sent: map[posthaste.MessageID]struct{}{}, queues: map[string]bool{}}
	err := i.run(ctx)
	r.Queues = append([]string{}, slices.Sorted(maps.Keys(i.queues))...)
	for _, old := range slices.Sorted(maps.Keys(o.Queues)) {
		if !i.queues[old] {
			r.Unmatched = append(r.Unmatched, old)
		}
	}
	return r, err
}

func (i *importer) run(ctx context.Context) error {
	places, err := i.places(ctx)
	if err != nil {
		return unreachable(err)
	}
	for _, w := range places {
		if w.queue != "" {
			i.queues[w.queue] = true
		}
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

// places returns the keys that contain jobs.
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

// jigglers returns the keys of jiggler. It has no list of its queues, so they are found by
// scanning Redis. Jobs in progress are in separate lists.
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

// page reads jobs, oldest first, except those that stay. Both programs push queued jobs to the
// front of a list.
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

// take imports the jobs of one key.
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
			return &posthaste.Error{Code: posthaste.CodeRefused, Message: fmt.Sprintf("%d jobs were rejected, the last with: %s", len(i.report.Refused), i.report.Refused[len(i.report.Refused)-1].Error),
				Hint: "check that their queues exist and accept payloads of that size, then run it again"}
		}
	}
}

// target chooses the queue of a message.
func (i *importer) target(m *posthaste.Message, w where) error {
	if w.set == "dead" {
		m.Queue = i.Dead
		return nil
	}
	i.queues[m.Queue] = true
	if mapped := i.Queues[m.Queue]; mapped != "" {
		m.Queue = mapped
	} else if i.Queue != "" {
		m.Queue = i.Queue
	}
	if m.Queue == i.Dead {
		return posthaste.Invalidf("dead", "queue %s is only for dead jobs, and this job is not dead: use another queue for --dead, or map this job's queue", i.Dead)
	}
	return nil
}

// send sends messages of one queue, and reports for each whether it was sent.
func (i *importer) send(ctx context.Context, w where, messages []posthaste.Message) (sent []bool, err error) {
	sent = make([]bool, len(messages))
	all, err := i.to.Send(ctx, messages...)
	if err != nil && !refusal(err) {
		return nil, err
	}
	n := 0
	for at := range messages {
		var id posthaste.MessageID
		if err == nil {
			id = all[at].ID
		} else if one, err := i.to.Send(ctx, messages[at]); err == nil { // one of them is at fault
			id = one[0].ID
		} else if refusal(err) {
			i.refuse(w, messages[at].Reference, missing(messages[at], err))
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
	return code == posthaste.CodeInvalid || code == posthaste.CodeTooLarge || code == posthaste.CodeNotFound
}

// missing returns the error of a queue that does not exist with remedies of the command line.
func missing(m posthaste.Message, err error) error {
	if posthaste.CodeOf(err) != posthaste.CodeNotFound {
		return err
	}
	return &posthaste.Error{Code: posthaste.CodeNotFound, Field: "queue", Message: fmt.Sprintf("queue %q does not exist", m.Queue), Cause: err,
		Hint: "create it with `posthaste queue create " + m.Queue + "`, or choose another with --map '" + m.Headers[headerQueue] + "=QUEUE'"}
}

func (i *importer) refuse(w where, jid string, err error) {
	i.report.Refused = append(i.report.Refused, Refusal{JID: jid, In: w.key, Error: err.Error()})
}

// remove removes sent jobs. They are at the end of a list, where LREM starts.
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

// unreachable adds a remedy to an error of the Redis that is read.
func unreachable(err error) error {
	var said goredis.Error
	if err == nil || errors.As(err, &said) && !strings.HasPrefix(err.Error(), "LOADING") || errors.Is(err, context.Canceled) {
		return err
	}
	return &posthaste.Error{Code: posthaste.CodeUnavailable, Field: "from", Message: "the Redis with the jobs cannot be read: " + err.Error(),
		Hint: "check that it runs and that --from is right, then run it again: sent jobs are not sent twice", Cause: err}
}
