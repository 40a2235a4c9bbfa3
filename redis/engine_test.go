package redis

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/enginetest"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
)

var _ posthaste.Store = (*Engine)(nil)

// server is the Redis of the tests that do not hurt it.
var server *devbroker.Redis

func TestMain(m *testing.M) {
	if where := os.Getenv(doomed); where != "" {
		fmt.Fprintln(os.Stderr, runDoomed(where))
		os.Exit(1)
	}
	devbroker.Main(m, &server, func(ctx context.Context, dir string) (*devbroker.Redis, error) {
		return devbroker.StartRedis(ctx, dir)
	})
}

var prefixes atomic.Int64

// open opens an engine whose keys no other test has.
func open(t *testing.T, url string, options ...Option) *Engine {
	t.Helper()
	e, err := Open(t.Context(), url, append([]Option{WithPrefix(fmt.Sprintf("test%d", prefixes.Add(1)))}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// Whatever a test of the suite does, nothing of it is left stranded.
func TestEngine(t *testing.T) {
	can := enginetest.All()
	can.MaxLag, can.SQL = false, false
	enginetest.Run(t, can, func(t *testing.T) posthaste.Store {
		e := open(t, server.URL())
		t.Cleanup(func() {
			if n := repairAll(t, e); n > 0 {
				t.Errorf("%d deliveries had no holder or messages were in no list", n)
			}
		})
		return e
	})
}

const jobs = "jobs"

func create(t *testing.T, e *Engine, o posthaste.QueueOptions) {
	t.Helper()
	if err := e.CreateQueue(t.Context(), jobs, o); err != nil {
		t.Fatal(err)
	}
}

func send(t *testing.T, e *Engine, n int) []posthaste.MessageID {
	t.Helper()
	messages := make([]posthaste.Message, n)
	for i := range messages {
		messages[i] = posthaste.Message{Queue: jobs, Payload: i}
	}
	ids, err := posthaste.IDs(e.Send(t.Context(), messages...))
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

func register(t *testing.T, e *Engine) posthaste.WorkerID {
	t.Helper()
	w, err := e.Register(t.Context(), posthaste.WorkerInfo{Name: "tester", Lease: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func claim(t *testing.T, e *Engine, w posthaste.WorkerID, number int64, most int) []posthaste.RawDelivery {
	t.Helper()
	reply, err := e.Claim(t.Context(), posthaste.ClaimRequest{Worker: w, Number: number, QueueRef: posthaste.QueueRef{Queue: jobs}, Max: most})
	if err != nil {
		t.Fatal(err)
	}
	return reply.Deliveries
}

func done(t *testing.T, e *Engine, deliveries ...posthaste.RawDelivery) (settled int) {
	t.Helper()
	var all []posthaste.Settlement
	for _, d := range deliveries {
		all = append(all, posthaste.Settlement{Delivery: d.ID, Outcome: posthaste.OutcomeDone})
	}
	results, err := e.Settle(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Settled {
			settled++
		}
	}
	return settled
}

// patch breaks a script: what stands for a protection is replaced.
type patch struct {
	of       *script
	old, new string
}

// rule checks that a promise holds with the shipped scripts, and is broken without its
// protection; otherwise the check proves nothing. holds returns the violation that it found,
// or "". Rules are not parallel because they change the scripts of the whole program.
func rule(t *testing.T, holds func(t *testing.T, e *Engine) string, patches ...patch) {
	t.Helper()
	t.Run("shipped", func(t *testing.T) {
		if broken := holds(t, open(t, server.URL())); broken != "" {
			t.Error(broken)
		}
	})
	breaks(t, holds, patches...)
}

// breaks is the second half of [rule], if another test checks the shipped scripts.
func breaks(t *testing.T, holds func(t *testing.T, e *Engine) string, patches ...patch) {
	t.Helper()
	t.Run("broken", func(t *testing.T) {
		for _, p := range patches {
			shipped := *p.of
			if !strings.Contains(shipped.read().text, p.old) {
				t.Fatalf("the script has no %q", p.old)
			}
			broken := newText(strings.ReplaceAll(shipped.read().text, p.old, p.new))
			*p.of = script{func() *scriptText { return broken }}
			defer func() { *p.of = shipped }()
		}
		// A busy machine may hide what a single look would find.
		for began := time.Now(); holds(t, open(t, server.URL())) == ""; {
			if time.Since(began) > time.Minute {
				t.Fatal("nothing was found without the protection")
			}
		}
	})
}
