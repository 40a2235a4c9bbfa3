package server

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// maxSteps is the maximum number of steps of a query, which bounds its answer.
const maxSteps = 1000

// chartQuery reads the parameters of a query about the past. The queue may stand in the path.
func chartQuery(r *http.Request, more ...string) (q *query, queue string) {
	known := append([]string{"from"}, more...)
	if queue = r.PathValue("queue"); queue == "" {
		known = append(known, "queue")
	}
	q = readQuery(r, known...)
	return q, cmp.Or(queue, q.text("queue"))
}

// steps reads the bounds of a query and the length of its steps.
func stepsOf(q *query) (from, to time.Time, step time.Duration) {
	from, to = q.time("from"), q.time("to")
	if text := q.text("step"); text != "" {
		var err error
		if step, err = wire.ParseDuration(text); err != nil {
			q.fail("step", err.Error())
		}
	}
	end := to
	if end.IsZero() {
		end = time.Now()
	}
	if step > 0 && !from.IsZero() && end.Sub(from)/step > maxSteps {
		q.fail("step", "is too short: at most 1000 steps fit between from and to, got "+strconv.Quote(q.text("step")))
	}
	return from, to, step
}

// showStats returns counts of handled messages.
func (s *Server) showStats(w http.ResponseWriter, r *http.Request) error {
	q, queue := chartQuery(r, "subscription", "kind", "to", "step", "by")
	from, to, step := stepsOf(q)
	query := posthaste.StatsQuery{Queue: queue, Subscription: q.text("subscription"), Kind: q.text("kind"), From: from, To: to, Step: step, By: statsBy(q)}
	if q.err != nil {
		return q.err
	}
	return chartAnswer(s, w, r, wire.NewStats, func(r *http.Request) ([]posthaste.HandlerStats, error) {
		return s.engine.HandlerStats(r.Context(), query)
	})
}

// statsBy reads what counts are grouped by.
func statsBy(q *query) (by posthaste.StatsBy) {
	text := q.text("by")
	if text == "" {
		return 0
	}
	for name := range strings.SplitSeq(text, ",") {
		of, known := posthaste.StatsByName(name)
		if !known {
			q.fail("by", `must be one or more of queue, kind, version and worker, with a comma between them`)
		}
		by |= of
	}
	return by
}

// listFailures returns groups of failed attempts.
func (s *Server) listFailures(w http.ResponseWriter, r *http.Request) error {
	q, queue := chartQuery(r, "subscription", "kind", "limit")
	query := posthaste.FailureQuery{Queue: queue, Subscription: q.text("subscription"), Kind: q.text("kind"), From: q.time("from"), Limit: q.int("limit", defaultListed, 1, maxListed)}
	if q.err != nil {
		return q.err
	}
	return chartAnswer(s, w, r, wire.NewFailure, func(r *http.Request) ([]posthaste.Failure, error) { return s.engine.Failures(r.Context(), query) })
}

// showSamples returns samples of subscriptions.
func (s *Server) showSamples(w http.ResponseWriter, r *http.Request) error {
	q, queue := chartQuery(r, "to", "step", "total")
	from, to, step := stepsOf(q)
	query := posthaste.SampleQuery{From: from, To: to, Step: step}
	if queue != "" {
		query.Queues = []string{queue}
	}
	switch text := q.text("total"); text {
	case "", "false":
	case "true":
		query.Total = true
	default:
		q.fail("total", "must be true or false")
	}
	if q.err != nil {
		return q.err
	}
	return chartAnswer(s, w, r, wire.NewSample, func(r *http.Request) ([]posthaste.Sample, error) { return s.engine.Samples(r.Context(), query) })
}

// chartAnswer reads figures about the past, and writes them.
func chartAnswer[T, Shown any](s *Server, w http.ResponseWriter, r *http.Request, show func(T) Shown, read func(*http.Request) ([]T, error)) error {
	if !s.engine.Capabilities().Charts {
		return &posthaste.Error{Code: posthaste.CodeUnsupported, Message: "this store keeps no figures about the past"}
	}
	ctx, cancel := s.operation(r)
	defer cancel()
	all, err := read(r.WithContext(ctx))
	if err != nil {
		return err
	}
	return s.writeJSON(w, http.StatusOK, wire.Charted[Shown]{Data: shown(all, show)})
}
