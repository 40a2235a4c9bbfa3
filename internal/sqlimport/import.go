// Package sqlimport migrates jobs from the tables of other queues in PostgreSQL: jobs that wait
// become messages. A query selects the jobs, and presets have the queries for known products.
// `posthaste import sql` runs it.
package sqlimport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
)

// Options configures an import.
type Options struct {
	// Preset names the product that the jobs are from, one of [Presets]. It excludes Query and
	// Done.
	Preset string
	// Schema contains the tables of the product. Empty means its usual schema.
	Schema string
	// Held imports the jobs that a worker holds, too. All workers must have stopped.
	Held bool
	// Query selects the jobs by columns with the names of [columns]. Lock is the clause that
	// follows it when jobs are imported, to lock them: [DefaultLock], or a similar one. If it is
	// empty, nothing else may change the jobs during the import. Done deletes or marks imported
	// jobs, so that Query does not select them again: $1 is an array of their ids.
	Query, Lock, Done string
	// Queue receives all jobs. If empty, each job goes to the queue with the name of its own
	// queue, or to the one that Queues maps it to.
	Queue  string
	Queues map[string]string
	// Same says that jobs and queues are in the same database, so that one transaction moves a
	// chunk.
	Same bool
	// Batch is the maximum number of jobs per transaction, 1 to 1000; 500 by default. Between two
	// databases it is at most 500.
	Batch int
	// DryRun only counts.
	DryRun bool
	// Progress is called with the number of jobs after each transaction. It may be nil.
	Progress func(jobs int)
}

// Report is the result of an import.
type Report struct {
	Source string `json:"source"`
	// Jobs counts the jobs by queue and kind.
	Jobs []Count `json:"jobs"`
	// Found counts the jobs at the beginning, Imported those that were sent and deleted or
	// marked, and Left those that still wait at the end, including rejected ones.
	Found    int `json:"found"`
	Imported int `json:"imported"`
	Left     int `json:"left"`
	// Known counts the imported jobs that an interrupted import had already sent.
	Known int `json:"known"`
	// Held counts the jobs that are not imported, because a worker holds them or other jobs
	// depend on them.
	Held int `json:"held"`
	// Refused are jobs that became no messages; they stay unchanged.
	Refused []Refusal `json:"refused"`
	// Unmatched are the names in [Options.Queues] that are the queue of no job. It is empty if
	// there was no job.
	Unmatched []string `json:"unmatched"`
	DryRun    bool     `json:"dry_run"`
}

// Count counts the jobs of one kind in one queue.
type Count struct {
	// From is the queue in the source, and Queue the one that receives the jobs.
	From     string `json:"from"`
	Queue    string `json:"queue"`
	Kind     string `json:"kind"`
	Found    int    `json:"found"`
	Imported int    `json:"imported"`
	Left     int    `json:"left"`
}

// Refusal is a job that became no message, and the reason.
type Refusal struct {
	ID    string `json:"id"`
	Error string `json:"error"`
}

// DefaultLock locks all rows that a query reads, except those that others have locked.
const DefaultLock = "for update skip locked"

const (
	// batchAcross is the default of Batch, and its maximum between two databases: the engine on
	// NATS stores at most 1,000 messages and dedupe keys at once.
	batchAcross = 500
	// maxRefused ends an import: so many rejections have a common cause.
	maxRefused = 1000
	// dedupeWindow is how long a job is recognized that was sent to another database: within
	// it an import that was killed may be run again.
	dedupeWindow = 7 * 24 * time.Hour
)

// source is one table with jobs.
type source struct {
	// name identifies the table within its database, for dedupe keys.
	name string
	// query selects the jobs, oldest first, and lock is what follows it to lock them.
	query, lock string
	// done deletes or marks jobs: $1 is an array of their ids.
	done string
	// held counts the jobs that are not imported although they are unfinished. It may be empty.
	held string
	// types are the types of the query's columns, by name.
	types map[string]string
	// checked says that done was seen to exclude jobs from query.
	checked bool
}

type importer struct {
	Options
	conn   *pgx.Conn
	to     posthaste.Engine
	report *Report
	counts map[job]*Count
	server string // identifies the source's database, for dedupe keys
}

// job is what jobs are counted by.
type job struct{ queue, kind string }

// Import imports all jobs over conn, oldest first. A transaction reads and locks a chunk, sends
// it, and deletes or marks it. If the jobs are in the database of their queues, that is one
// transaction. Otherwise the chunk is sent to the other database before the transaction commits,
// with dedupe keys, so that a repetition within a week sends nothing twice. So an import may be
// killed at any time and run again. The report is valid even with an error.
func Import(ctx context.Context, conn *pgx.Conn, to posthaste.Engine, o Options) (Report, error) {
	o.Batch = cmp.Or(o.Batch, batchAcross)
	if !o.Same {
		o.Batch = min(o.Batch, batchAcross)
	}
	r := Report{Source: cmp.Or(o.Preset, "query"), Jobs: []Count{}, Refused: []Refusal{}, Unmatched: []string{}, DryRun: o.DryRun}
	i := &importer{Options: o, conn: conn, to: to, report: &r, counts: map[job]*Count{}}
	err := i.run(ctx)
	i.sum()
	return r, explain(err)
}

func (i *importer) run(ctx context.Context) error {
	sources, err := i.sources(ctx)
	if err != nil {
		return err
	}
	for _, s := range sources {
		if err := i.describe(ctx, s); err != nil {
			return err
		}
		if err := i.count(ctx, s, func(c *Count, n int) { c.Found += n }); err != nil {
			return err
		}
	}
	if err := i.checkQueues(ctx); err != nil {
		return err
	}
	if !i.Same {
		if err := i.identify(ctx); err != nil {
			return err
		}
	}
	for _, s := range sources {
		if !i.DryRun {
			if err := i.take(ctx, s); err != nil {
				return err
			}
		}
		if err := i.count(ctx, s, func(c *Count, n int) { c.Left += n }); err != nil {
			return err
		}
		if s.held != "" {
			var n int
			if err := i.conn.QueryRow(ctx, s.held).Scan(&n); err != nil {
				return err
			}
			i.report.Held += n
		}
	}
	return nil
}

// identify reads what distinguishes the source's database from all others. Two databases may have
// jobs with the same ids.
func (i *importer) identify(ctx context.Context) error {
	var system string
	if err := i.conn.QueryRow(ctx, "select system_identifier::text from pg_catalog.pg_control_system()").Scan(&system); err != nil {
		if !denied(err) {
			return err
		}
		system = fmt.Sprintf("%s:%d", i.conn.Config().Host, i.conn.Config().Port)
	}
	err := i.conn.QueryRow(ctx, "select pg_catalog.current_database()").Scan(&i.server)
	i.server = system + "/" + i.server
	return err
}

// counter returns the count of a job's queue and kind.
func (i *importer) counter(j job) *Count {
	c := i.counts[j]
	if c == nil {
		c = &Count{From: j.queue, Queue: i.target(j.queue), Kind: j.kind}
		i.counts[j] = c
	}
	return c
}

// count counts the jobs of a source.
func (i *importer) count(ctx context.Context, s *source, add func(c *Count, n int)) error {
	rows, err := i.conn.Query(ctx, fmt.Sprintf("select coalesce(%s, ''), coalesce(%s, ''), count(*) from (%s\n) as job group by 1, 2",
		s.expression("queue"), s.expression("kind"), s.query))
	if err != nil {
		return err
	}
	var j job
	var n int
	_, err = pgx.ForEachRow(rows, []any{&j.queue, &j.kind, &n}, func() error {
		add(i.counter(j), n)
		return nil
	})
	return err
}

// sum completes the report.
func (i *importer) sum() {
	r, queues := i.report, map[string]bool{}
	for _, c := range i.counts {
		queues[c.From] = true
		r.Jobs = append(r.Jobs, *c)
		r.Found, r.Imported, r.Left = r.Found+c.Found, r.Imported+c.Imported, r.Left+c.Left
	}
	slices.SortFunc(r.Jobs, func(a, b Count) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.Kind, b.Kind))
	})
	for _, old := range slices.Sorted(maps.Keys(i.Queues)) {
		if len(queues) > 0 && !queues[old] {
			r.Unmatched = append(r.Unmatched, old)
		}
	}
}

// target returns the queue that receives the jobs of a queue.
func (i *importer) target(queue string) string {
	return cmp.Or(i.Queues[queue], i.Queue, queue)
}

// checkQueues fails if a queue that will receive jobs does not exist. A user who may only send
// cannot list queues; the sends report missing ones then.
func (i *importer) checkQueues(ctx context.Context) error {
	existing, err := i.to.Queues(ctx)
	if posthaste.CodeOf(err) == posthaste.CodeDenied {
		return nil
	}
	if err != nil {
		return err
	}
	missing := map[string]string{} // to the queue of the jobs
	for _, c := range i.counts {
		if c.Queue == "" {
			return posthaste.Invalidf("queue", "the query has no column queue, so the queue is unknown: set --queue")
		}
		missing[c.Queue] = c.From
	}
	for _, q := range existing {
		delete(missing, q.Name)
	}
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		another := "--queue"
		if from := missing[name]; from != "" && (i.Queue == "" || i.Queues[from] != "") {
			another = "--map '" + from + "=QUEUE'"
		}
		fault := &posthaste.Error{Code: posthaste.CodeNotFound, Field: "queue", Message: fmt.Sprintf("queue %q does not exist", name),
			Hint: "create it with `posthaste queue create " + name + "`, or choose another with " + another}
		if posthaste.CheckName("queue", name) != nil {
			fault.Code, fault.Message = posthaste.CodeInvalid, fmt.Sprintf("%q is not a possible name of a queue", name)
			fault.Hint = "choose another queue with " + another
		}
		faults = append(faults, fault)
	}
	return errors.Join(faults...)
}
