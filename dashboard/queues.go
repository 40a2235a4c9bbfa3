package dashboard

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// queueRow is a queue with the counters of all its subscriptions.
type queueRow struct {
	Name                         string
	Paused                       bool
	PausedKeys                   int
	Subscriptions                int
	Waiting, InFlight, Dead      int64
	Retried, Lost                int64
	Oldest                       time.Duration
	SentPerSecond, DonePerSecond float64
	Spark                        string // points of a small chart; may be empty
}

func newQueueRow(q posthaste.QueueInfo) queueRow {
	row := queueRow{Name: q.Name, Paused: !q.PausedAt.IsZero(), PausedKeys: len(q.PausedKeys), Subscriptions: len(q.Subscriptions)}
	for _, s := range q.Subscriptions {
		row.Waiting, row.InFlight, row.Dead = row.Waiting+s.Depth, row.InFlight+s.InFlight, row.Dead+s.Dead
		row.Retried, row.Lost = row.Retried+s.Retried, row.Lost+s.Lost
		row.Oldest, row.SentPerSecond = max(row.Oldest, s.OldestAge), max(row.SentPerSecond, s.SentPerSecond)
		row.DonePerSecond += s.DonePerSecond
	}
	return row
}

// Drain is when a backlog is gone at the present rates; 0 if that is not known.
func (r queueRow) Drain() time.Duration {
	rate := r.DonePerSecond - r.SentPerSecond*float64(max(r.Subscriptions, 1))
	if r.Waiting == 0 || rate <= 0 {
		return 0
	}
	seconds := float64(r.Waiting) / rate
	if seconds > 365*24*60*60 {
		return 0 // such a rate says nothing
	}
	return time.Duration(seconds * float64(time.Second))
}

// Behind reports whether the queue cannot keep up: messages wait, and none or too few are done.
func (r queueRow) Behind() bool {
	return r.Waiting > 0 && (r.Oldest > time.Minute || r.SentPerSecond > 1.1*r.DonePerSecond && r.Oldest > 10*time.Second)
}

// rows returns the queues that the caller may see.
func (p *page) rows(s *snapshot) []queueRow {
	var rows []queueRow
	for _, q := range s.queues {
		if p.AllowsQueue(q.Name) {
			rows = append(rows, newQueueRow(q))
		}
	}
	slices.SortFunc(rows, func(a, b queueRow) int { return cmp.Compare(a.Name, b.Name) })
	return rows
}

// queueColumns are the columns by which queues can be sorted.
var queueColumns = []struct {
	Name, Title string
	compare     func(a, b queueRow) int
}{
	{"name", "Queue", func(a, b queueRow) int { return cmp.Compare(a.Name, b.Name) }},
	{"waiting", "Waiting", func(a, b queueRow) int { return cmp.Compare(a.Waiting, b.Waiting) }},
	{"oldest", "Oldest", func(a, b queueRow) int { return cmp.Compare(a.Oldest, b.Oldest) }},
	{"in-flight", "In flight", func(a, b queueRow) int { return cmp.Compare(a.InFlight, b.InFlight) }},
	{"dead", "Dead", func(a, b queueRow) int { return cmp.Compare(a.Dead, b.Dead) }},
	{"sent", "Sent/s", func(a, b queueRow) int { return cmp.Compare(a.SentPerSecond, b.SentPerSecond) }},
	{"done", "Done/s", func(a, b queueRow) int { return cmp.Compare(a.DonePerSecond, b.DonePerSecond) }},
}

// column is a column's head: the link sorts by it.
type column struct{ Title, Link, Sorted string }

func (d *dashboard) showQueues(p *page) error {
	s, err := d.snapshots.look(p.ctx())
	if err != nil {
		return err
	}
	rows, name := p.rows(s), p.text("name")
	rows = slices.DeleteFunc(rows, func(r queueRow) bool { return !strings.Contains(strings.ToLower(r.Name), strings.ToLower(name)) })
	by, descending := strings.CutPrefix(p.text("sort"), "-")
	var columns []column
	for _, c := range queueColumns {
		if !d.can.Totals && (c.Name == "sent" || c.Name == "done") {
			continue
		}
		head := column{Title: c.Title, Link: p.with("sort", "-"+c.Name, "page", "")}
		if c.Name == "name" {
			head.Link = p.with("sort", "", "page", "")
		}
		if c.Name == by {
			if head.Sorted = "ascending"; descending {
				head.Sorted, head.Link = "descending", p.with("sort", c.Name, "page", "")
			}
			slices.SortStableFunc(rows, func(a, b queueRow) int {
				if descending {
					a, b = b, a
				}
				return c.compare(a, b)
			})
		}
		columns = append(columns, head)
	}
	total := len(rows)
	rows, before, after, err := p.turn(rows)
	if err != nil {
		return err
	}
	lines, err := p.sparks(s)
	if err != nil {
		return err
	}
	for i := range rows {
		rows[i].Spark = lines[rows[i].Name]
	}
	return p.show("queues", "Queues", "queues", true, struct {
		Columns                   []column
		Rows                      []queueRow
		Total                     int
		Filter                    bool
		Name, Sort, Before, After string
	}{columns, rows, total, name != "" || total > queuesShown, name, p.text("sort"), before, after})
}

// queuesShown is how many queues a page shows. It is small enough for a browser that compares all
// of them with the next state every two seconds.
const queuesShown = 100

// turn returns the queues of the page that the parameter page numbers from 1, and the addresses of
// the pages before and after it; empty for no such page.
func (p *page) turn(rows []queueRow) (shown []queueRow, before, after string, err error) {
	n := 1
	if text := p.text("page"); text != "" {
		if n, err = strconv.Atoi(text); err != nil || n < 1 {
			return nil, "", "", posthaste.Invalidf("page", "page must be a positive number, got %q", text)
		}
	}
	n = min(n, max(1, (len(rows)+queuesShown-1)/queuesShown))
	from := (n - 1) * queuesShown
	to := min(from+queuesShown, len(rows))
	if n == 2 {
		before = p.with("page", "")
	} else if n > 2 {
		before = p.with("page", strconv.Itoa(n-1))
	}
	if to < len(rows) {
		after = p.with("page", strconv.Itoa(n+1))
	}
	return rows[from:to], before, after, nil
}

// findQueue returns the queue in the path.
func (p *page) findQueue() (*posthaste.QueueInfo, error) {
	s, err := p.d.snapshots.look(p.ctx())
	if err != nil {
		return nil, err
	}
	name := p.r.PathValue("queue")
	if q := s.queue(name); q != nil {
		return q, nil
	}
	return nil, notFound("There is no queue %q.", name)
}

// option is an option of a queue that differs from the default, or is always of interest.
type option struct{ Name, Usage, Value string }

func optionsOf(o posthaste.QueueOptions) (set, defaults []option) {
	for _, q := range posthaste.QueueOptionTable() {
		shown := option{q.Name, q.Usage, q.Text(o)}
		switch {
		case q.IsZero(o) || q.Default != nil && fmt.Sprint(q.Value(o, nil)) == fmt.Sprint(q.Default):
			defaults = append(defaults, shown)
		default:
			set = append(set, shown)
		}
	}
	return set, defaults
}

// keyed reports whether keys of a queue can be paused.
func keyed(o posthaste.QueueOptions) bool {
	return o.Ordered || o.Fair || o.Limits.KeyConcurrency > 0 || !o.Limits.KeyRateLimit.IsZero()
}

func (d *dashboard) showQueue(p *page) error {
	q, err := p.findQueue()
	if err != nil {
		return err
	}
	var recent posthaste.Page[posthaste.MessageInfo]
	if p.r.Header.Get("HX-Request") == "" { // a page that follows the store does not show them again
		if recent, err = d.engine.Messages(p.ctx(), posthaste.MessageFilter{Queue: q.Name, Limit: 20}); err != nil {
			return err
		}
	}
	set, defaults := optionsOf(q.Options)
	shown, handlers, err := p.history(q.Name)
	if err != nil {
		return err
	}
	why, err := d.paused(p.ctx(), q.Name)
	if err != nil {
		return err
	}
	return p.show("queue", "Queue "+q.Name, "queues", true, struct {
		Queue         *posthaste.QueueInfo
		Row           queueRow
		Set, Defaults []option
		Recent        []posthaste.MessageInfo
		Keyed, Kinds  bool
		Charts        *charts
		Handling      *handling
		Choices       []choice
		Paused        paused
	}{q, newQueueRow(*q), set, defaults, recent.Items, keyed(q.Options) && d.can.Limits, !keyed(q.Options) && d.can.PauseKinds, shown, handlers, p.choices(), why})
}

// history returns the charts of a queue, and the counts of its handlers.
func (p *page) history(queue string) (*charts, *handling, error) {
	if !p.d.can.Charts {
		return nil, nil, nil
	}
	s, err := p.d.snapshots.look(p.ctx())
	if err != nil {
		return nil, nil, err
	}
	shown, err := p.flow(queue, s)
	if err != nil {
		return nil, nil, err
	}
	handlers, err := p.handling(queue)
	return shown, handlers, err
}

func (p *page) queueLink(name, done string) string { return p.link("/queues/"+name, "done", done) }

// planQueue returns the plan of an action on the queue in the path.
func (p *page) planQueue(done string, make func(q *posthaste.QueueInfo) (*plan, func(context.Context) error)) (*plan, error) {
	q, err := p.findQueue()
	if err != nil {
		return nil, err
	}
	made, do := make(q)
	made.Back = p.queueLink(q.Name, "")
	made.do = func(p *page) (string, error) { return p.queueLink(q.Name, done), do(p.ctx()) }
	return made, nil
}

func (d *dashboard) planPause(p *page) (*plan, error) {
	asked, err := p.pausing()
	if err != nil {
		return nil, err
	}
	return p.planQueue("paused", func(q *posthaste.QueueInfo) (*plan, func(context.Context) error) {
		made := &plan{Title: "Pause queue " + q.Name, Button: "Pause", CLI: command(slices.Concat([]string{"queue", "pause"}, asked.flags(), []string{q.Name})...),
			Curl: curl("POST", "/v1/queues/"+q.Name+"/pause", asked.body()), SQL: pauseCall(asked, "pause_queue", q.Name),
			Effects: []string{"No message of this queue is handed out until the queue is resumed.", "Messages that are handed out continue, and sending continues."},
		}
		askPause(made, asked, p.r.Method == http.MethodGet)
		return made, func(ctx context.Context) error {
			return d.engine.Pause(ctx, posthaste.OfQueue(q.Name), asked.PauseOptions)
		}
	})
}

func (d *dashboard) planResume(p *page) (*plan, error) {
	return p.planQueue("resumed", func(q *posthaste.QueueInfo) (*plan, func(context.Context) error) {
		return &plan{Title: "Resume queue " + q.Name, Button: "Resume", CLI: command("queue", "resume", q.Name), Curl: curl("POST", "/v1/queues/"+q.Name+"/resume", ""), SQL: call("resume_queue", q.Name),
			Effects: []string{fmt.Sprintf("%d waiting messages of this queue are handed out again, as workers ask for them.", newQueueRow(*q).Waiting)},
		}, func(ctx context.Context) error { return d.engine.Resume(ctx, posthaste.OfQueue(q.Name)) }
	})
}

func (d *dashboard) planPurge(p *page) (*plan, error) {
	q, err := p.findQueue()
	if err != nil {
		return nil, err
	}
	return &plan{
		Title: "Purge queue " + q.Name, Button: "Purge", Danger: true, Typed: q.Name, Back: p.queueLink(q.Name, ""),
		Effects: []string{
			fmt.Sprintf("All waiting messages of this queue are removed for good: about %d, including scheduled messages and retries.", newQueueRow(*q).Waiting),
			"Messages that are handed out continue. Dead letters stay.",
		},
		CLI: command("queue", "purge", q.Name), Curl: curl("POST", "/v1/queues/"+q.Name+"/purge", ""), SQL: call("purge", q.Name),
		do: func(p *page) (string, error) {
			purged, err := d.engine.PurgeQueue(p.ctx(), q.Name)
			var n int64
			for _, each := range purged {
				n += each.Messages
			}
			return p.link("/queues/"+q.Name, "done", "purged", "n", strconv.FormatInt(n, 10)), err
		},
	}, nil
}

// askSend shows the form of a test message.
func (d *dashboard) askSend(p *page) error {
	q, err := p.findQueue()
	if err != nil {
		return err
	}
	return p.show("send", "Send a test message to "+q.Name, "queues", false, struct {
		Queue *posthaste.QueueInfo
		Once  string
	}{q, rand.Text()})
}

// send sends a test message. The field once makes a form that is sent twice one message.
func (d *dashboard) send(p *page) error {
	q, err := p.findQueue()
	if err != nil {
		return err
	}
	message := posthaste.Message{
		Queue: q.Name, Key: p.text("key"), Kind: p.text("kind"), Reference: p.text("reference"), ContentType: p.text("content_type"),
		Headers: map[string]string{posthaste.HeaderSender: p.Actor},
	}
	// Browsers send line breaks as CR and LF.
	payload := strings.ReplaceAll(p.query.Get("payload"), "\r\n", "\n")
	message.Payload = payload
	if kind := message.ContentType; kind == "" || kind == posthaste.ContentTypeJSON || strings.HasSuffix(kind, "+json") {
		message.Payload = json.RawMessage(cmp.Or(strings.TrimSpace(payload), "null"))
	}
	if delay := p.text("delay"); delay != "" {
		if message.Delay, err = time.ParseDuration(delay); err != nil {
			return posthaste.Invalidf("delay", "The delay must be a duration such as 30s or 2h, got %q.", delay)
		}
	}
	sent, err := p.sendOnce(message, payload)
	if err != nil {
		return err
	}
	d.snapshots.forget()
	return p.redirect(p.link("/messages/"+sent[0].ID.String(), "done", "sent"))
}

// sendOnce sends a message once for each form, even if the browser sends the form twice. content
// is the part of the message that the form can change.
func (p *page) sendOnce(message posthaste.Message, content string) ([]posthaste.Sent, error) {
	once, err := p.formKey()
	if err != nil {
		return nil, err
	}
	if !p.d.can.Idempotency {
		return p.d.engine.Send(p.ctx(), message)
	}
	text, _ := json.Marshal([]any{content, message.Queue, message.Key, message.Kind, message.Reference, message.ContentType, message.Delay}) // always encodes
	digest := sha256.Sum256(text)
	// A form that was changed before it is sent again is another message.
	key := once + hex.EncodeToString(digest[:8])
	sent, _, err := p.d.engine.SendOnce(p.ctx(), posthaste.Idempotency{Scope: p.Actor + " dashboard", Key: key, Digest: digest[:], Window: time.Hour}, message)
	return sent, err
}
