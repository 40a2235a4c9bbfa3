//go:build unix

package sqlimport

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
)

// failing is an engine that is unavailable after one send.
type failing struct {
	posthaste.Engine
	sends *int
}

func (e failing) Send(ctx context.Context, messages ...posthaste.Message) ([]posthaste.Sent, error) {
	if *e.sends++; *e.sends > 1 {
		return nil, &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "gone"}
	}
	return e.Engine.Send(ctx, messages...)
}

// An import that is interrupted or fails between the queues of a chunk deletes or marks the jobs
// that it sent to another database, so that no worker runs them again.
func TestHalfSentChunkIsFinished(t *testing.T) {
	t.Parallel()
	p := newPlace(t, false)
	o := Options{Query: strings.Replace(plainQuery, "'default'", "case when id < 6 then 'default' else 'mail' end", 1), Lock: DefaultLock, Done: plainDone}
	for why, of := range map[string]func(stop func()) posthaste.Engine{
		"unavailable": func(func()) posthaste.Engine { return failing{p.engine, new(int)} },
		"interrupted": func(stop func()) posthaste.Engine { return interrupted{p.engine, stop} },
	} {
		p.exec("drop table if exists jobs;" + strings.ReplaceAll(plain, "'job '", "'"+why+" '"))
		ctx, cancel := context.WithCancel(p.ctx)
		defer cancel()
		before := len(p.messages())
		report, err := Import(ctx, newConn(p), of(cancel), o)
		if err == nil {
			t.Errorf("%s: the import succeeds", why)
		}
		if sent, marked := len(p.messages())-before, p.number("select count(*) from jobs where sent"); sent != 5 || marked != 5 || report.Imported != 5 || report.Known != 0 || len(report.Refused) != 0 {
			t.Errorf("%s: %d messages were sent and %d jobs are marked, want 5; the report is %+v", why, sent, marked, report)
		}
		if report := p.imports(o); report.Imported != 5 || report.Known != 0 || len(p.messages())-before != 10 {
			t.Errorf("%s: the report of the repetition is %+v", why, report)
		}
	}
}

// A name of --map that no job's queue has is reported, and so is what to do about a missing queue.
func TestWrongMaps(t *testing.T) {
	t.Parallel()
	p := newPlace(t, true)
	p.exec(plain)
	o := Options{Same: true, Query: plainQuery, Lock: DefaultLock, Done: plainDone}
	for hint, set := range map[string]Options{
		"--map 'default=QUEUE'": {Queues: map[string]string{"default": "jbos"}},
		"with --queue":          {Queue: "jbos"},
	} {
		o.Queues, o.Queue = set.Queues, set.Queue
		if _, err := Import(p.ctx, p.conn, p.engine, o); err == nil || !strings.Contains(err.Error(), hint) {
			t.Errorf("%v, want %s", err, hint)
		}
	}
	o.Queue, o.Queues = "", map[string]string{"defualt": "mail", "default": "shipping"}
	for _, o.DryRun = range []bool{true, false} {
		if report := p.imports(o); !slices.Equal(report.Unmatched, []string{"defualt"}) {
			t.Errorf("the report is %+v", report)
		}
	}
	if report := p.imports(o); len(report.Unmatched) != 0 {
		t.Errorf("the report of a repetition is %+v", report)
	}
}
