package redis

import (
	"fmt"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// sparing is an engine that keeps ten settled messages of a queue without retention.
type sparing struct {
	*Engine
	t      *testing.T
	worker posthaste.WorkerID
	number int64
}

func newSparing(t *testing.T, e *Engine) *sparing {
	t.Helper()
	o, err := New(t.Context(), e.client, WithPrefix(e.keys.prefix), WithKept(10))
	if err != nil {
		t.Fatal(err)
	}
	return &sparing{Engine: o, t: t, worker: register(t, o)}
}

// settle settles n messages, which one claim handed out.
func (s *sparing) settle(n int) {
	s.t.Helper()
	send(s.t, s.Engine, n)
	s.number++
	if settled := done(s.t, s.Engine, claim(s.t, s.Engine, s.worker, s.number, n)...); settled != n {
		s.t.Fatalf("%d were settled, want %d", settled, n)
	}
}

// unlessTen returns a violation unless upkeep leaves ten settled messages.
func (s *sparing) unlessTen() string {
	s.t.Helper()
	for more := true; more; {
		reply, err := s.Maintain(s.t.Context(), posthaste.UpkeepSpace)
		if err != nil {
			s.t.Fatal(err)
		}
		more = reply.More
	}
	n := 0
	for _, e := range s.client.LRange(s.t.Context(), s.keys.of(jobs, "past"), 0, -1).Val() {
		var batch struct {
			Messages []string `codec:"i"`
		}
		if e[0] != 'B' {
			n++
		} else if err := unpack(e[1:], &batch); err != nil {
			s.t.Fatal(err)
		}
		n += len(batch.Messages)
	}
	if n != 10 {
		return fmt.Sprintf("%d settled messages are kept, want 10", n)
	}
	return ""
}

// When a queue has no retention any more, it keeps as many settled messages as one that never had
// one, in whatever form they are kept.
func TestJB6_RetentionEnds(t *testing.T) {
	const (
		counts  = "call('HSET', KEYS[at + AT_TALLY], 'kept', text(kept))"
		batches = "kept = kept + #unpacked(string.sub(e, 2)).i - 1"
	)
	hour := posthaste.QueueOptions{Retention: time.Hour}
	runOptionRules(t, map[string]optionRule{
		"retained messages are counted": {hour, func(t *testing.T, e *Engine) string {
			s := newSparing(t, e)
			s.settle(30)
			update(t, s.Engine, posthaste.QueueOptions{}, "retention")
			return s.unlessTen()
		}, []patch{{&renewScript, counts, ""}}},
		"batches from before are counted": {posthaste.QueueOptions{}, func(t *testing.T, e *Engine) string {
			s := newSparing(t, e)
			s.settle(10)
			update(t, s.Engine, hour)
			s.settle(12)
			update(t, s.Engine, posthaste.QueueOptions{}, "retention")
			return s.unlessTen()
		}, []patch{{&renewScript, batches, ""}}},
		"batches from before are retained": {posthaste.QueueOptions{}, func(t *testing.T, e *Engine) string {
			s := newSparing(t, e)
			id := send(t, s.Engine, 1)[0]
			s.settle(1)
			update(t, s.Engine, hour)
			s.settle(1)
			return unlessState(t, s.Engine, id, posthaste.StateDone)
		}, []patch{{&settleScript, "return unpacked(unpacked(string.sub(e, 2)).s).s[1].e", "return 0"}}},
		"another change counts nothing twice": {hour, func(t *testing.T, e *Engine) string {
			s := newSparing(t, e)
			s.settle(200)
			update(t, s.Engine, posthaste.QueueOptions{}, "retention")
			s.settle(10)
			update(t, s.Engine, posthaste.QueueOptions{Timeout: time.Hour})
			return s.unlessTen()
		}, []patch{{&renewScript, "elseif call('HEXISTS', KEYS[at + AT_TALLY], 'kept') == 0 then", "else"}}},
	})
}
