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
	// maxQueues is how many queues messages may be spread over, and maxWorkers how many
	// processes may handle them.
	maxQueues, maxWorkers = 1000, 8
	// handling is the share of the duration that is kept for the workers to end with what
	// was sent in a slice.
	handling = 0.2
	// onset is the longest time that a way is used before it is measured. Workers that slept
	// begin to poll then, as they do at the beginning of any dense traffic.
	onset = time.Second
)

// Whether workers handle the messages of a way.
const (
	attended   = "with a worker"
	unattended = "without a worker"
)

// sending is a run of transactional or senders, which compare ways to send.
type sending struct {
	run        *run
	at         home // of the senders, whose sessions bear a name
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
	main       *sendWay // whose figures are those of the result
	complete   bool
}

// sendWay is one kind of transaction or call.
type sendWay struct {
	SendingWay
	messages int64                                  // of one call; 0 means 1
	once     func(ctx context.Context, i int) error // one call, by sender i
	discard  func(ctx context.Context) error        // what a slice left behind; may be nil
	laps     []sendingLap
	// What it is compared with, where it is.
	row, payloads, plain, own, nobody *sendWay
}

// sendingLap is one slice of a way. CPU is microseconds per message.
type sendingLap struct {
	perSecond, handled            float64
	server, client, workers, http *float64
	atOnset                       int64 // notifications before it was measured
	contended
}

// openSending makes the queues and the connections, and starts the workers.
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

// openSenders opens what messages are sent by, and what watches the senders.
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

// measure measures each way in rounds, and sums up.
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
		w := s.ways[(round+i)%len(s.ways)] // none is always first
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

// queue is the next one to send to.
func (s *sending) queue(kind string) string {
	of := s.queues[kind]
	return of[int(s.next.Add(1))%len(of)]
}

// sendsBy sends one message in each call.
func (s *sending) sendsBy(by sends, name, kind string) *sendWay {
	return &sendWay{SendingWay: SendingWay{Way: name, Worker: kind}, once: func(ctx context.Context, _ int) error {
		_, err := by.Send(ctx, posthaste.Message{Queue: s.queue(kind), Payload: payload})
		return err
	}}
}

// paced calls once, not before its turn where a rate was asked for.
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

// slice uses one way for a while and then measures it. The workers handle what was sent
// in either part.
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

// stretch uses a way for a while. whole is from the first call to the last settle.
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

// audit says what no figure may hide: messages that were not settled in time, and handler
// calls that are not one per message.
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
