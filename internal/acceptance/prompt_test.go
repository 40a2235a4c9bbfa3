//go:build unix

package acceptance

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/server"
)

// A waiting HTTP receive gets the next message as soon as it may be handed out: when a place
// becomes free, a token is available, or it is due. The server itself would look only after an
// hour.
func TestWaitingReceiversAreWokenByLimits(t *testing.T) {
	t.Parallel()
	const per = 300 * time.Millisecond
	for name, c := range map[string]struct {
		options posthaste.QueueOptions
		delay   time.Duration
		acked   bool // the next one comes when the previous one ends
	}{
		"concurrency":          {posthaste.QueueOptions{Limits: posthaste.QueueLimits{Concurrency: 1}}, 0, true},
		"concurrency of a key": {posthaste.QueueOptions{Limits: posthaste.QueueLimits{KeyConcurrency: 1}}, 0, true},
		"order":                {posthaste.QueueOptions{Ordered: true}, 0, true},
		"rate":                 {posthaste.QueueOptions{Limits: posthaste.QueueLimits{RateLimit: posthaste.Rate{Limit: 1, Per: per}}}, 0, false},
		"rate of a key":        {posthaste.QueueOptions{Limits: posthaste.QueueLimits{KeyRateLimit: posthaste.Rate{Limit: 1, Per: per}}}, 0, false},
		"delay":                {posthaste.QueueOptions{}, per, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			q := s.queue(c.options)
			a := s.serve(s.engine, func(c *server.Config) { c.LookInterval = time.Hour })
			const rounds = 8
			messages := make([]posthaste.Message, rounds)
			for i := range messages {
				messages[i] = posthaste.Message{Queue: q, Key: "a", Payload: i, Delay: time.Duration(i) * c.delay}
			}
			_, err := s.engine.Send(s.ctx, messages...)
			s.must(err)
			type received struct {
				got []struct{ ID string }
				at  time.Time
				err error
			}
			receive := func() (r received) {
				answer, err := a.try("POST", "/v1/queues/"+q+"/receive", `{"max":1,"lease":"1h","wait":"5m"}`)
				r.at = time.Now()
				if r.err = err; err == nil {
					r.err = json.Unmarshal(answer.entries(t), &r.got)
				}
				return r
			}
			var late []time.Duration
			var held string
			var last time.Time
			for round := range rounds {
				answered := make(chan received, 1)
				go func() { answered <- receive() }()
				if c.acked && round > 0 {
					rest(t.Context(), 50*time.Millisecond) // so that it usually waits
					last = time.Now()
					a.want(200, "POST", "/v1/deliveries/ack", fmt.Sprintf(`{"deliveries":[{"id":%q}]}`, held))
				}
				r := <-answered
				s.must(r.err)
				if len(r.got) != 1 {
					t.Fatalf("round %d: %d were handed out, want one", round, len(r.got))
				}
				if round > 0 {
					next := last
					if !c.acked {
						next = last.Add(per)
					}
					late = append(late, r.at.Sub(next))
				}
				held, last = r.got[0].ID, r.at
			}
			slices.Sort(late)
			t.Logf("after it may: %v", late)
			if median := late[len(late)/2]; full() && median > 50*time.Millisecond {
				t.Errorf("half of them come %v or more after they may", median)
			}
		})
	}
}
