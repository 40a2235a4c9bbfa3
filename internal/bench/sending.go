package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/postgres"
)

const (
	// handling is the share of the duration that is reserved for the workers to handle the
	// messages of each slice.
	handling = 0.2
	// onset is the maximum time that a way is used before it is measured. In that time workers
	// that slept begin to poll, as at the beginning of any dense traffic.
	onset = time.Second
)

// sending is a run of scenario transactional or senders, which compare ways to send.
type sending struct {
	run        *run
	at         home // of the senders, with their application name
	engine     posthaste.Store
	plain      *plain // the connections, and the table that payloads are inserted into; nil on Redis
	crew       *crew
	server     *child   // the HTTP server, if there is one
	posts      []*posts // of each sender to it
	contention *contention
	queues     map[string][]string // by attended and unattended
	next       atomic.Int64
	sent       int64 // to queues that workers read
	ways       []*sendWay
	main       *sendWay // the way whose figures are those of the result
	complete   bool
}

// openSending creates the queues and the connections, and starts the workers.
func openSending(ctx context.Context, r *run, purpose string) (s *sending, err error) {
	s = &sending{run: r, complete: true, queues: map[string][]string{}}
	at, err := r.home(ctx, purpose)
	if err != nil {
		return s, err
	}
	if err := s.openSenders(ctx, at); err != nil {
		return s, err
	}
	for _, kind := range []string{attended, unattended} {
		for i := range r.o.Queues {
			name := fmt.Sprint(strings.ReplaceAll(kind, " ", "-"), "-", i)
			s.queues[kind] = append(s.queues[kind], name)
			if err := s.engine.CreateQueue(ctx, name, posthaste.QueueOptions{}); err != nil {
				return s, err
			}
		}
	}
	s.crew, err = startCrew(ctx, order{home: at, Queues: s.queues[attended]}, r.o.Workers)
	return s, err
}

// openSenders opens the connections of the senders, and those that observe them.
func (s *sending) openSenders(ctx context.Context, at home) (err error) {
	if s.at = at; s.run.redis != nil {
		if s.contention, err = openWakeUps(ctx, s.run.redis); err == nil {
			s.engine, err = at.open(ctx, s.run.o.Log)
		}
		return err
	}
	senders := "bench-senders-" + s.run.server.token
	if s.at.URL, err = withApplicationName(at.URL, senders); err != nil {
		return err
	}
	if s.contention, err = openContention(ctx, at.URL, senders); err != nil {
		return err
	}
	if s.engine, err = postgres.Open(ctx, s.at.URL, postgres.WithLogger(s.run.o.Log), postgres.WithPoolSize(singles)); err != nil {
		return err
	}
	s.plain, err = openPlain(ctx, s.at.URL)
	return err
}

// measure measures each way in rounds, and sets the result.
func (s *sending) measure(ctx context.Context) error {
	for _, w := range s.ways {
		if i := slices.IndexFunc(s.ways, func(o *sendWay) bool { return o.Way == w.Way && o.Worker == unattended }); i >= 0 && w.Worker == attended {
			w.nobody = s.ways[i]
		}
	}
	s.run.begin()
	s.run.phase("warming up")
	for _, w := range s.ways {
		if _, err := s.slice(ctx, w, s.run.part(warming)/time.Duration(len(s.ways))); err != nil {
			return err
		}
		w.Messages = 0
	}
	done := 0
	for done < rounds {
		if whole, err := s.round(ctx, done); err != nil {
			return err
		} else if !whole {
			break
		}
		done++
	}
	for _, w := range s.ways {
		w.laps = w.laps[:done]
	}
	if err := s.audit(); err != nil {
		return err
	}
	s.conclude()
	return nil
}

// round measures each way once, unless the earlier rounds took too long.
func (s *sending) round(ctx context.Context, round int) (whole bool, err error) {
	during := s.run.part((1 - warming - handling) / float64(rounds*len(s.ways)))
	for i := range s.ways {
		if round > 0 && s.run.late() {
			return false, nil
		}
		w := s.ways[(round+i)%len(s.ways)] // each is first at some time
		s.run.phase(strings.TrimSpace(w.Way + " " + w.Worker))
		err := s.run.profiled(round == rounds-1 && w == s.main, func() error {
			lap, err := s.slice(ctx, w, during)
			w.laps = append(w.laps, lap)
			return errors.Join(err, lap.failure)
		})
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// queue returns the next queue to send to.
func (s *sending) queue(kind string) string {
	of := s.queues[kind]
	return of[int(s.next.Add(1))%len(of)]
}

// sendsBy returns a way that sends one message with each call.
func (s *sending) sendsBy(by sends, name, kind string) *sendWay {
	return &sendWay{SendingWay: SendingWay{Way: name, Worker: kind}, once: func(ctx context.Context, _ int) error {
		_, err := by.Send(ctx, posthaste.Message{Queue: s.queue(kind), Payload: payload})
		return err
	}}
}

// paced returns a function that calls w.once. If the options set a rate, it waits for its turn.
func (s *sending) paced(w *sendWay, during time.Duration) func(context.Context, int) (int64, error) {
	var turn atomic.Int64
	begun, messages := time.Now(), max(w.messages, 1)
	return func(ctx context.Context, i int) (int64, error) {
		if rate := s.run.o.Rate; rate > 0 {
			at := time.Duration(float64(turn.Add(messages)) / rate * float64(time.Second))
			select {
			case <-time.After(min(at, during) - time.Since(begun)):
			case <-ctx.Done():
				return 0, ctx.Err()
			}
			if at > during {
				return 0, nil
			}
		}
		if err := w.once(ctx, i); err != nil {
			return 0, fmt.Errorf("%q failed: %w", w.Way, err)
		}
		return messages, nil
	}
}

// slice uses one way for some time and then measures it. The workers handle the messages of
// both parts.
func (s *sending) slice(ctx context.Context, w *sendWay, during time.Duration) (lap sendingLap, err error) {
	lead := min(onset, during/3)
	watched := s.contention.watch(ctx)
	if _, _, _, err := s.stretch(ctx, w, lead); err != nil {
		return lap, errors.Join(err, watched().failure)
	}
	first := watched()
	lap.atOnset = first.notified
	before, err := s.used()
	if err != nil {
		return lap, err
	}
	watched = s.contention.watch(ctx)
	sent, took, whole, err := s.stretch(ctx, w, during-lead)
	lap.contended = watched()
	if err != nil {
		return lap, err
	}
	lap.failure = errors.Join(first.failure, lap.failure)
	lap.handled = rate(sent, whole)
	after, err := s.used()
	if err != nil {
		return lap, err
	}
	after.per(sent, before, &lap)
	lap.perSecond = rate(sent, took)
	w.Messages += sent
	if w.discard != nil {
		return lap, w.discard(ctx)
	}
	return lap, ctx.Err()
}

// stretch uses a way for some time. whole is the time from the first call to the last settle.
func (s *sending) stretch(ctx context.Context, w *sendWay, during time.Duration) (sent int64, took, whole time.Duration, err error) {
	begun := monotonic()
	sent, took, err = forAWhile(ctx, singles, during, s.paced(w, during))
	if err != nil || w.Worker != attended {
		return sent, took, took, err
	}
	s.sent += sent
	limited, stop := context.WithTimeout(ctx, s.run.o.drain)
	defer stop()
	done, all, err := s.crew.await(limited, s.sent)
	s.complete = s.complete && all
	return sent, took, done.Last - begun, err
}

// audit invalidates the result if messages were not settled in time, or if the handler was not
// called once per message.
func (s *sending) audit() error {
	got, err := s.crew.total()
	switch {
	case err != nil:
		return err
	case !s.complete:
		s.run.invalid("%d of %d messages were not settled, or not within %s of the last send of a slice", s.sent-got.Done, s.sent, s.run.o.drain)
	case got.Handled != s.sent:
		s.run.invalid("%d messages were sent and handlers were called %d times", s.sent, got.Handled)
	}
	return nil
}

func (s *sending) close() (err error) {
	for _, p := range s.posts {
		p.close()
	}
	if s.server != nil {
		err = s.server.end()
	}
	if s.crew != nil {
		err = errors.Join(err, s.crew.end())
	}
	if s.plain != nil {
		s.plain.close()
	}
	if s.engine != nil {
		s.engine.Close()
	}
	if s.contention != nil {
		s.contention.close()
	}
	return err
}

func (s *sending) used() (u usage, err error) {
	u.server, u.known = s.run.meter().Total()
	u.server -= s.contention.used()
	u.client = ownCPU()
	got, err := s.crew.total()
	if err != nil || s.server == nil {
		u.workers = got.CPU
		return u, err
	}
	u.workers = got.CPU
	got, err = s.server.ask(order{})
	u.http = got.CPU
	return u, err
}

// conclude sets the result.
func (s *sending) conclude() {
	o := s.run.o
	result := &SendingResult{Connections: singles, SentTo: o.Queues, WorkerProcesses: o.Workers, AskedPerSecond: o.Rate}
	for _, w := range s.ways {
		w.sumUp()
		result.Ways = append(result.Ways, w.SendingWay)
		if w.dense() {
			result.MostNotifications = max(result.MostNotifications, w.Notifications)
		}
		if w.LockWaits != nil && (result.MostLockWaits == nil || *w.LockWaits > *result.MostLockWaits) {
			result.MostLockWaits = w.LockWaits
		}
	}
	res, main := s.run.result, s.main.SendingWay
	res.SendingResult = result
	res.PerSecond, res.Messages = known(main.PerSecond), main.Messages
	if res.Ratio = main.RatioToPayloads; res.Ratio == nil {
		res.Ratio = main.RatioToEngine
	}
	res.ServerCPU, res.ClientCPU = main.ServerCPU, main.ClientCPU
}
