package dashboard

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/posthaste-mq/posthaste"
)

const (
	// maxBulk is how many bulk actions of a process run at the same time.
	maxBulk = 4
	// keptBulk is how many bulk actions are remembered, those that run included.
	keptBulk = 100
	// maxBulkRate is the highest rate, in messages per second.
	maxBulkRate = 100_000
	// bulkPatience is how long a confirmation waits for a bulk action, so that a short one is
	// shown with its result.
	bulkPatience = time.Second
)

// The states of a bulk action.
const (
	bulkRunning = "running"
	bulkDone    = "done"
	bulkStopped = "stopped"
	bulkFailed  = "failed"
)

// tally counts the messages that a bulk action came to.
type tally struct {
	// Changed were changed. Kept stay as they are, and Failed returned an error.
	Changed, Kept, Failed int
	// fault is one of the errors of Failed.
	fault error
}

// bulkStep changes up to limit of the messages that are left. It calls count with them, and ends
// early if that returns false. An error ends the action.
type bulkStep func(ctx context.Context, limit int, count func(tally) bool) (last bool, err error)

// bulk is an action on many messages. It runs in this process after the request that confirmed it,
// in steps, until it ends or is stopped.
type bulk struct {
	ID, Actor string
	// Verb and Past name the action, such as Replay and Replayed, and Noun its objects, such as
	// "dead letter".
	Verb, Past, Noun string
	Total            int
	// Kept says why the messages of tally.Kept stay as they are.
	KeptBecause string
	// Rate is the highest number of messages per second; 0 for no limit.
	Rate   int
	Filter []field
	// path is the confirmation of the action, and params are those of its filter, with which the rest
	// can be selected again. list is the page to which the action belongs.
	path, list string
	params     []string
	// queues are those of its messages; none means any.
	queues []string
	// step does the work, at most size messages at a time.
	step bulkStep
	size int

	stop     chan struct{}
	stopOnce sync.Once
	ended    chan struct{}

	mu   sync.Mutex
	now  bulkProgress
	from time.Time
}

// bulkProgress is the progress of a bulk action at one time.
type bulkProgress struct {
	tally
	State     string
	StartedAt time.Time
	EndedAt   time.Time
	// Err is why it failed, and Part is an error of single messages.
	Err, Part string
	By        string
}

// bulks are the bulk actions of this process.
type bulks struct {
	mu  sync.Mutex
	all []*bulk // oldest first
}

// start runs a bulk action, or returns an error if too many run already.
func (all *bulks) start(p *page, b *bulk, timeout time.Duration) error {
	all.mu.Lock()
	defer all.mu.Unlock()
	running := 0
	for _, other := range all.all {
		if other.progress().State == bulkRunning {
			running++
		}
	}
	if running >= maxBulk {
		return &posthaste.Error{Code: posthaste.CodeUnavailable, Message: fmt.Sprintf("Nothing was changed: %d bulk actions of this process already run, which is its limit.", running),
			Hint: "Wait until one has ended, or stop one on its page."}
	}
	if len(all.all) >= keptBulk {
		oldest := slices.IndexFunc(all.all, func(b *bulk) bool { return b.progress().State != bulkRunning })
		all.all = slices.Delete(all.all, oldest, oldest+1)
	}
	b.ID, b.Actor = rand.Text(), p.Actor
	b.stop, b.ended = make(chan struct{}), make(chan struct{})
	b.from = time.Now()
	b.now = bulkProgress{State: bulkRunning, StartedAt: b.from.UTC()}
	all.all = append(all.all, b)
	// The request ends, and its operator stays the one in the records.
	go b.run(posthaste.WithActor(context.WithoutCancel(p.ctx()), b.operator()), timeout, p.Stopping)
	return nil
}

// maxOperator is the maximum number of characters of the operator in the records of a bulk action.
const maxOperator = 300

// recordedFields are the fields of filters whose values are in the records. The values of others,
// such as keys and terms, can be personal data: erasing removes them from messages, and records
// stay.
var recordedFields = []string{"queue", "subscription", "kind", "state", "from", "at", "died_from", "died_before"}

// operator is the operator in the records of all that the action changes: who confirmed it, its id,
// the action and its filter.
func (b *bulk) operator() string {
	var filter []string
	for _, f := range b.Filter {
		if !slices.Contains(recordedFields, f.Name) {
			f.Value = "…"
		}
		filter = append(filter, strings.ReplaceAll(f.Name, "_", " ")+" = "+line(f.Value))
	}
	if len(filter) == 0 {
		filter = append(filter, "a selection, or all")
	}
	text := []rune(fmt.Sprintf("%s (bulk action %s: %s %s; %s)", b.Actor, b.ID[:6], b.Verb, amount(b.Total, b.Noun), strings.Join(filter, ", ")))
	if len(text) > maxOperator {
		text = append(text[:maxOperator-2], []rune("…)")...)
	}
	return string(text)
}

// find returns a bulk action that the caller may see.
func (all *bulks) find(p *page, id string) (*bulk, error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, b := range all.all {
		if b.ID == id {
			return b, b.allowed(p)
		}
	}
	return nil, &posthaste.Error{Code: posthaste.CodeNotFound, Message: fmt.Sprintf("This process knows no bulk action %q.", id),
		Hint: "A bulk action ends with the process that runs it. The audit log has all that it changed. Select the rest again."}
}

// seen returns the bulk actions that the caller may see, newest first.
func (all *bulks) seen(p *page) (seen []*bulk) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, b := range slices.Backward(all.all) {
		if b.allowed(p) == nil {
			seen = append(seen, b)
		}
	}
	return seen
}

// allowed returns an error if the caller may not see the queues of a bulk action.
func (b *bulk) allowed(p *page) error {
	if len(b.queues) == 0 && p.Limited() {
		return denied("The token is limited to some queues, and this action is about all of them.")
	}
	for _, queue := range b.queues {
		if err := p.allowQueue(queue); err != nil {
			return err
		}
	}
	return nil
}

func (b *bulk) progress() bulkProgress {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

// halt makes the action end after its present step.
func (b *bulk) halt(by string) {
	b.stopOnce.Do(func() {
		b.mu.Lock()
		b.now.By = by
		b.mu.Unlock()
		close(b.stop)
	})
}

// wait waits until the action has ended, but not long.
func (b *bulk) wait(ctx context.Context) {
	patience := time.NewTimer(bulkPatience)
	defer patience.Stop()
	select {
	case <-b.ended:
	case <-patience.C:
	case <-ctx.Done():
	}
}

// run does the work until it ends, it is stopped, or the server stops.
func (b *bulk) run(ctx context.Context, timeout time.Duration, stopping <-chan struct{}) {
	state, err := bulkFailed, error(nil)
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("internal error: %v", fault)
		}
		b.end(state, err)
	}()
	limit := b.size
	if b.Rate > 0 {
		limit = min(limit, max(b.Rate/2, 1)) // two steps a second look even
	}
	for {
		switch {
		case closed(b.stop):
			state = bulkStopped
			return
		case closed(stopping):
			err = &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "The server stopped."}
			return
		}
		step, cancel := context.WithTimeout(ctx, timeout)
		last, fault := b.step(step, limit, func(did tally) bool {
			b.add(did)
			return !closed(b.stop) && !closed(stopping)
		})
		cancel()
		if errors.Is(fault, context.DeadlineExceeded) {
			fault = fmt.Errorf("a step of up to %s took longer than %s. The audit log tells whether it was done. With a rate, steps are smaller", amount(limit, b.Noun), timeout)
		}
		switch {
		case fault != nil:
			err = fault
			return
		case last:
			state = bulkDone
			return
		}
		b.pace(stopping)
	}
}

// closed reports whether a channel on which nothing is sent is closed.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// pace waits until the rate allows the next step.
func (b *bulk) pace(stopping <-chan struct{}) {
	if b.Rate == 0 {
		return
	}
	next := b.from.Add(time.Duration(float64(b.progress().Tried()) / float64(b.Rate) * float64(time.Second)))
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-b.stop:
	case <-stopping:
	}
}

// add counts a part of a step.
func (b *bulk) add(did tally) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := &b.now
	now.Changed, now.Kept, now.Failed = now.Changed+did.Changed, now.Kept+did.Kept, now.Failed+did.Failed
	if did.fault != nil {
		now.Part = did.fault.Error()
	}
}

func (b *bulk) end(state string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now.State, b.now.EndedAt = state, time.Now().UTC()
	if err != nil {
		b.now.Err = strings.TrimSuffix(err.Error(), ".") // the page ends the sentence
	}
	close(b.ended)
}

// shownBulk is a bulk action as its page shows it.
type shownBulk struct {
	*bulk
	bulkProgress
	// Gone are those that were no longer to be found when it ended, and Left those that it did not
	// come to.
	Gone, Left int
	// Again is the address of the confirmation for the rest, and List that of the list; "" for none.
	Again, List string
	Operates    bool
}

func newShownBulk(p *page, b *bulk) shownBulk {
	s := shownBulk{bulk: b, bulkProgress: b.progress(), List: p.link(b.list, b.params...)}
	switch rest := max(b.Total-s.Tried(), 0); {
	case s.State == bulkDone:
		s.Gone = rest
	case s.State != bulkRunning:
		s.Left, s.Again = rest, p.link(b.path, b.params...)
	default:
		s.Left = rest
	}
	return s
}

// Title names the action.
func (s shownBulk) Title() string { return s.Verb + " " + amount(s.Total, s.Noun) }

// Tried is how many messages it came to.
func (s bulkProgress) Tried() int { return s.Changed + s.Kept + s.Failed }

// Params reports whether the rest can be selected again.
func (s shownBulk) Params() bool { return len(s.params) > 0 }

// Running reports whether it goes on.
func (s shownBulk) Running() bool { return s.State == bulkRunning }

// Stopping reports whether it ends after its present step.
func (s shownBulk) Stopping() bool { return s.State == bulkRunning && s.By != "" }

// Took is how long it has run, and PerSecond its speed.
func (s shownBulk) Took() time.Duration {
	if s.EndedAt.IsZero() {
		return time.Since(s.from)
	}
	return s.EndedAt.Sub(s.StartedAt)
}

// PerSecond is its speed so far.
func (s shownBulk) PerSecond() float64 { return float64(s.Tried()) / max(s.Took().Seconds(), 0.001) }

// Remaining is about how long it still runs.
func (s shownBulk) Remaining() time.Duration {
	if s.Tried() == 0 || !s.Running() {
		return 0
	}
	return time.Duration(float64(s.Left) / s.PerSecond() * float64(time.Second)).Truncate(time.Second)
}

// Result is the number of changed messages as a sentence.
func (s shownBulk) Result() string { return s.Past + " " + amount(s.Changed, "message") + "." }

// amount returns a number with a noun, for example "1 message" and "2,300 messages".
func amount(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return number(n) + " " + noun + "s"
}

func (d *dashboard) showBulks(p *page) error {
	var all []shownBulk
	for _, b := range d.bulks.seen(p) {
		all = append(all, newShownBulk(p, b))
	}
	return p.show("bulks", "Bulk actions", "bulk", true, all)
}

func (d *dashboard) showBulk(p *page) error {
	b, err := d.bulks.find(p, p.r.PathValue("bulk"))
	if err != nil {
		return err
	}
	shown := newShownBulk(p, b)
	shown.Operates = p.Allows(posthaste.ScopeOperate)
	return p.show("bulk", shown.Title(), "bulk", true, shown)
}

// stopBulk ends a bulk action. It asks for no confirmation, because it changes no message.
func (d *dashboard) stopBulk(p *page) error {
	b, err := d.bulks.find(p, p.r.PathValue("bulk"))
	if err != nil {
		return err
	}
	b.halt(p.Actor)
	b.wait(p.ctx())
	return p.redirect(p.link("/bulk/" + b.ID))
}

// begin starts a bulk action with the rate of the confirmation, and returns the address of its page.
func (d *dashboard) begin(p *page, b *bulk) (to string, err error) {
	if text := p.text("rate"); text != "" {
		if b.Rate, err = strconv.Atoi(text); err != nil || b.Rate < 1 || b.Rate > maxBulkRate {
			return "", posthaste.Invalidf("rate", "Nothing was changed: the rate must be 1 to %s messages per second, or empty for no limit, got %q.", number(maxBulkRate), text)
		}
	}
	if err := d.bulks.start(p, b, d.timeout); err != nil {
		return "", err
	}
	b.wait(p.ctx())
	d.snapshots.forget()
	return p.link("/bulk/" + b.ID), nil
}

// rateInput asks for the rate of a bulk action.
func rateInput() input {
	return input{Name: "rate", Label: "At most per second", Placeholder: "no limit", Numeric: true}
}
