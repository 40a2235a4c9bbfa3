package server

import (
	"cmp"
	"net/http"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// routes returns every operation of the API.
func (s *Server) routes() []*route {
	routes := []*route{
		{method: "POST", path: "/v1/queues/{queue}/messages", scope: ScopeSend, answer: bare(s.sendMessages), body: maxBody, idempotent: true},
		{method: "POST", path: "/v1/queues/{queue}/receive", scope: ScopeReceive, answer: s.receive},
		{method: "POST", path: "/v1/deliveries/ack", scope: ScopeReceive, answer: bare(s.settle(ackFields)), body: deliveriesBody, queues: true},
		{method: "POST", path: "/v1/deliveries/fail", scope: ScopeReceive, answer: bare(s.settle(failFields)), body: deliveriesBody, queues: true},
		{method: "POST", path: "/v1/deliveries/release", scope: ScopeReceive, answer: bare(s.settle(releaseFields)), body: deliveriesBody, queues: true},
		{method: "POST", path: "/v1/deliveries/extend", scope: ScopeReceive, answer: bare(s.extend), body: deliveriesBody, queues: true},
		{method: "POST", path: "/v1/emails", scope: ScopeSend, answer: bare(s.sendEmail), body: maxBody, queues: true, idempotent: true},

		{method: "GET", path: "/v1/messages", scope: ScopeAdmin, answer: s.listMessages},
		{method: "GET", path: "/v1/messages/{id}", scope: ScopeAdmin, answer: bare(s.showMessage)},
		{method: "PATCH", path: "/v1/messages/{id}", scope: ScopeAdmin, answer: bare(s.updateMessage)},
		{method: "DELETE", path: "/v1/messages/{id}", scope: ScopeAdmin, answer: plain(s.cancelMessage)},
		{method: "POST", path: "/v1/messages/{id}/reschedule", scope: ScopeAdmin, answer: bare(s.rescheduleMessage)},
		{method: "POST", path: "/v1/messages/{id}/run", scope: ScopeAdmin, answer: plain(s.runMessage)},
		{method: "GET", path: "/v1/emails", scope: ScopeAdmin, answer: s.listEmails},
		{method: "GET", path: "/v1/emails/{id}", scope: ScopeAdmin, answer: bare(s.showEmail)},

		{method: "GET", path: "/v1/queues", scope: ScopeAdmin, answer: listing(s, s.allQueues, wire.NewQueue)},
		{method: "GET", path: "/v1/queues/{queue}", scope: ScopeAdmin, answer: bare(s.showQueue)},
		{method: "PUT", path: "/v1/queues/{queue}", scope: ScopeAdmin, answer: bare(s.putQueue)},
		{method: "DELETE", path: "/v1/queues/{queue}", scope: ScopeAdmin, answer: s.done(s.dropQueue)},
		{method: "PUT", path: "/v1/queues/{queue}/limits", scope: ScopeAdmin, answer: bare(s.limitQueue)},
		{method: "POST", path: "/v1/queues/{queue}/pause", scope: ScopeAdmin, answer: plain(s.pauseQueue(s.engine.Pause))},
		{method: "POST", path: "/v1/queues/{queue}/resume", scope: ScopeAdmin, answer: plain(s.pauseQueue(s.engine.Resume))},
		{method: "POST", path: "/v1/queues/{queue}/keys/pause", scope: ScopeAdmin, answer: bare(s.pauseKey(s.engine.Pause))},
		{method: "POST", path: "/v1/queues/{queue}/keys/resume", scope: ScopeAdmin, answer: bare(s.pauseKey(s.engine.Resume))},
		{method: "POST", path: "/v1/queues/{queue}/purge", scope: ScopeAdmin, answer: plain(s.purgeQueue)},
		{method: "POST", path: "/v1/queues/{queue}/subscriptions/{subscription}", scope: ScopeAdmin, answer: bare(s.subscribe)},
		{method: "DELETE", path: "/v1/queues/{queue}/subscriptions/{subscription}", scope: ScopeAdmin, answer: s.done(s.unsubscribe)},

		{method: "GET", path: "/v1/dead-letters", scope: ScopeAdmin, answer: s.listDeadLetters},
		{method: "POST", path: "/v1/dead-letters/replay", scope: ScopeAdmin, answer: bare(s.decideDeadLetters(s.engine.Replay))},
		{method: "POST", path: "/v1/dead-letters/discard", scope: ScopeAdmin, answer: bare(s.decideDeadLetters(s.engine.Discard))},

		{method: "GET", path: "/v1/schedules", scope: ScopeAdmin, answer: listing(s, s.allSchedules, wire.NewSchedule)},
		{method: "GET", path: "/v1/schedules/{schedule}", scope: ScopeAdmin, answer: bare(s.showSchedule)},
		{method: "PUT", path: "/v1/schedules/{schedule}", scope: ScopeAdmin, answer: bare(s.putSchedule)},
		{method: "DELETE", path: "/v1/schedules/{schedule}", scope: ScopeAdmin, answer: s.done(s.dropSchedule)},
		{method: "POST", path: "/v1/schedules/{schedule}/pause", scope: ScopeAdmin, answer: plain(s.pauseSchedule(s.engine.Pause))},
		{method: "POST", path: "/v1/schedules/{schedule}/resume", scope: ScopeAdmin, answer: plain(s.pauseSchedule(s.engine.Resume))},

		{method: "POST", path: "/v1/erase", scope: ScopeAdmin, answer: bare(s.erase)},
		{method: "GET", path: "/v1/actions", scope: ScopeAdmin, answer: s.listActions},
		{method: "GET", path: "/v1/workers", scope: ScopeAdmin, answer: listing(s, s.engine.Workers, wire.NewWorker)},
		{method: "GET", path: "/v1/doctor", scope: ScopeAdmin, answer: bare(s.doctor)},

		{method: "GET", path: "/healthz", answer: s.healthz},
		{method: "GET", path: "/readyz", answer: s.readyz},
		{method: "GET", path: "/openapi.json", answer: s.openapi},
	}
	if s.metrics != nil {
		routes = append(routes, &route{method: "GET", path: "/metrics", scope: ScopeAny, answer: s.showMetrics})
	}
	return routes
}

func (s *Server) mux(mounts map[string]http.Handler) *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range s.routes() {
		mux.Handle(r.method+" "+r.path, s.guard(r))
	}
	for path, handler := range mounts {
		mounted := withPassword(s.guard(&route{scope: ScopeAdmin, answer: func(w http.ResponseWriter, r *http.Request) error {
			handler.ServeHTTP(w, r)
			return nil
		}}))
		mux.Handle(path, mounted)
		if path[len(path)-1] != '/' {
			mux.Handle(path+"/", mounted)
		}
	}
	return mux
}

// guard passes a request to the route's answer if its token allows it, and writes the
// error that the answer returns.
func (s *Server) guard(route *route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		exchange := exchangeOf(r)
		exchange.route = route
		token, err := s.authorize(r, route)
		exchange.caller = token
		if err == nil {
			err = s.limitToken(token)
		}
		if err == nil {
			err = cmp.Or(checkPath(r), refuseIdempotencyKey(r, route))
		}
		if err == nil && route.scope == ScopeAdmin { // only operators' actions are recorded
			r = r.WithContext(posthaste.WithActor(r.Context(), caller(r)))
		}
		if err == nil {
			err = route.answer(w, r)
		}
		if err != nil {
			s.writeError(w, r, err)
		}
	})
}
