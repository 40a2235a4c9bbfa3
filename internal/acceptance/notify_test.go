//go:build unix

package acceptance

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/worker"
)

// Each send that notifies takes a database-wide lock at commit. A calm sender notifies at most
// once for each message. In dense traffic hardly any send notifies, whatever the number of
// queues, and at night no sampled send waits for the lock.
func TestLA4_NotificationsByLoad(t *testing.T) {
	for _, load := range []struct {
		queues, perSecond int
		night             bool
	}{{1, 50, true}, {1, 500, false}, {20, 1000, false}, {200, 1000, true}, {1, 5000, true}} {
		t.Run(fmt.Sprintf("%d queues, %d a second", load.queues, load.perSecond), func(t *testing.T) {
			if load.night {
				testrun.Nightly(t, "two loads show the same on each change")
			}
			s := newStage(t)
			var handled atomic.Int64
			w := worker.New(s.open(), worker.Config{Logger: s.log})
			queues := make([]string, load.queues)
			for i := range queues {
				queues[i] = s.queue(posthaste.QueueOptions{})
				worker.HandleRaw(w, queues[i], func(context.Context, posthaste.RawDelivery) error { handled.Add(1); return nil })
			}
			heard := s.listen("")
			s.run(w)
			if load.perSecond > 200 {
				s.until("the worker polls", func() bool {
					before := heard.Load()
					s.sendSteadily(queues, load.perSecond, 300*time.Millisecond)
					return heard.Load() == before
				})
			}
			// If the machine stalls, traffic is calm and the try does not count. Pacing must
			// be visible in one of three valid tries.
			dense := 0
			for range 20 {
				before, waits := heard.Load(), s.lockWaits()
				began := time.Now()
				sent := s.sendSteadily(queues, load.perSecond, size(time.Second, 10*time.Second))
				took := time.Since(began)
				notified, waiting := heard.Load()-before, waits()
				t.Logf("%d messages in %s: %d notifications; of the samples %.1f%% waited for the lock", sent, took.Round(time.Millisecond), notified, 100*waiting)
				if load.perSecond <= 200 {
					if notified > int64(sent) {
						t.Errorf("%d messages caused %d notifications", sent, notified)
					}
					return
				}
				if float64(sent)/took.Seconds() < 300 {
					continue
				}
				most := size(int64(sent)/5, int64(20*took.Seconds()))
				if notified <= most && (!full() || waiting <= 0.01) {
					return
				}
				if dense++; dense == 3 {
					t.Fatalf("%d messages caused %d notifications, at most %d are allowed; %.1f%% of the samples waited for the lock", sent, notified, most, 100*waiting)
				}
			}
			t.Logf("the machine was too busy for dense traffic: %d of 20 tries had 300 messages a second", dense)
		})
	}
}

// sendSteadily sends single messages to queues in turn, each in its own transaction.
func (s *stage) sendSteadily(queues []string, perSecond int, during time.Duration) (sent int) {
	s.Helper()
	const senders = 16
	var sending sync.WaitGroup
	var count atomic.Int64
	began := time.Now()
	for k := range senders {
		sending.Go(func() {
			for i := k; ; i += senders {
				pace(began.Add(time.Duration(i) * time.Second / time.Duration(perSecond)))
				if time.Since(began) > during {
					return
				}
				if _, err := s.engine.Send(s.ctx, posthaste.Message{Queue: queues[i%len(queues)], Payload: i}); err != nil {
					s.Error(err)
					return
				}
				count.Add(1)
			}
		})
	}
	sending.Wait()
	return int(count.Load())
}

// lockWaits samples which share of the active sessions waits for the lock of NOTIFY, until
// part is called.
func (s *stage) lockWaits() (part func() float64) {
	s.Helper()
	conn := s.conn()
	ctx, stop := context.WithCancel(s.ctx)
	ended := make(chan struct{})
	var waiting, active int
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			var w, a int
			err := conn.QueryRow(s.ctx, `select count(*) filter (where wait_event_type = 'Lock' and wait_event = 'object'), count(*)
				from pg_stat_activity where datname = current_database() and state = 'active' and pid <> pg_backend_pid()`).Scan(&w, &a)
			if err != nil {
				s.Error(err)
				return
			}
			waiting, active = waiting+w, active+a
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	return func() float64 {
		stop()
		<-ended
		return float64(waiting) / float64(max(1, active))
	}
}
