package server

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/posthaste-mq/posthaste"
)

// routes returns every operation of the API.
func (s *Server) routes() []*route {
	routes := slices.Concat(s.messageRoutes(), s.queueRoutes(), s.operationRoutes())
	if s.metrics != nil {
		routes = append(routes, &route{method: "GET", path: "/metrics", scope: ScopeAny, answer: s.showMetrics})
	}
	return routes
}

// messageRoutes are the operations on messages, deliveries, e-mails and dead letters.
func (s *Server) messageRoutes() []*route {
	return []*route{
		{method: "POST", path: "/v1/queues/{queue}/messages", scope: ScopeSend, answer: bare(s.sendMessage), body: maxBody, idempotent: true},
		{method: "POST", path: "/v1/queues/{queue}/messages/batch", scope: ScopeSend, answer: bare(s.sendMessages), body: maxBody, idempotent: true},
		{method: "GET", path: "/v1/queues/{queue}/messages", scope: ScopeRead, answer: s.listMessages},
		{method: "POST", path: "/v1/queues/{queue}/receive", scope: ScopeReceive, answer: bare(s.receive)},

		{method: "POST", path: "/v1/deliveries/ack", scope: ScopeReceive, answer: bare(s.settleMany(ackFields)), body: deliveriesBody, queues: true},
		{method: "POST", path: "/v1/deliveries/fail", scope: ScopeReceive, answer: bare(s.settleMany(failFields)), body: deliveriesBody, queues: true},
		{method: "POST", path: "/v1/deliveries/release", scope: ScopeReceive, answer: bare(s.settleMany(releaseFields)), body: deliveriesBody, queues: true},
		{method: "POST", path: "/v1/deliveries/extend", scope: ScopeReceive, answer: bare(s.extendMany), body: deliveriesBody, queues: true},
		{method: "POST", path: "/v1/deliveries/{id}/ack", scope: ScopeReceive, answer: bare(s.settleOne(ackFields)), queues: true},
		{method: "POST", path: "/v1/deliveries/{id}/fail", scope: ScopeReceive, answer: bare(s.settleOne(failFields)), queues: true},
		{method: "POST", path: "/v1/deliveries/{id}/release", scope: ScopeReceive, answer: bare(s.settleOne(releaseFields)), queues: true},
		{method: "POST", path: "/v1/deliveries/{id}/extend", scope: ScopeReceive, answer: bare(s.extendOne), queues: true},

		{method: "GET", path: "/v1/messages", scope: ScopeRead, answer: s.listMessages},
		{method: "GET", path: "/v1/messages/{id}", scope: ScopeRead, own: true, answer: bare(s.showMessage), queues: true},
		{method: "PATCH", path: "/v1/messages/{id}", scope: ScopeOperate, answer: bare(s.updateMessage)},
		{method: "DELETE", path: "/v1/messages/{id}", scope: ScopeOperate, answer: plain(s.cancelMessage)},
		{method: "POST", path: "/v1/messages/{id}/reschedule", scope: ScopeOperate, answer: bare(s.rescheduleMessage)},
		{method: "POST", path: "/v1/messages/{id}/run", scope: ScopeOperate, answer: plain(s.runMessage)},

		{method: "POST", path: "/v1/emails", scope: ScopeSend, answer: bare(s.sendEmail), body: maxBody, queues: true, idempotent: true},
		{method: "GET", path: "/v1/emails", scope: ScopeRead, answer: s.listEmails},
		{method: "GET", path: "/v1/emails/{id}", scope: ScopeRead, own: true, answer: bare(s.showEmail), queues: true},
		{method: "DELETE", path: "/v1/emails/{id}", scope: ScopeOperate, answer: plain(s.cancelEmail)},

		{method: "GET", path: "/v1/dead-letters", scope: ScopeRead, answer: s.listDeadLetters},
		{method: "POST", path: "/v1/dead-letters/replay", scope: ScopeOperate, answer: bare(s.decideDeadLetters(s.engine.Replay))},
		{method: "POST", path: "/v1/dead-letters/discard", scope: ScopeOperate, answer: bare(s.decideDeadLetters(s.engine.Discard))},
		{method: "GET", path: "/v1/dead-letters/{id}", scope: ScopeRead, answer: s.showDeadLetter},
		{method: "POST", path: "/v1/dead-letters/{id}/replay", scope: ScopeOperate, answer: plain(s.decideDeadLetter(s.engine.Replay))},
		{method: "POST", path: "/v1/dead-letters/{id}/discard", scope: ScopeOperate, answer: plain(s.decideDeadLetter(s.engine.Discard))},
	}
}

// queueRoutes are the operations on queues, subscriptions and schedules.
func (s *Server) queueRoutes() []*route {
	return []*route{
		{method: "GET", path: "/v1/queues", scope: ScopeRead, answer: s.queueList().answer(s)},
		{method: "GET", path: "/v1/queues/{queue}", scope: ScopeRead, answer: bare(s.showQueue)},
		{method: "PUT", path: "/v1/queues/{queue}", scope: ScopeAdmin, answer: bare(s.putQueue)},
		{method: "DELETE", path: "/v1/queues/{queue}", scope: ScopeAdmin, answer: s.done(s.dropQueue)},
		{method: "PATCH", path: "/v1/queues/{queue}", scope: ScopeAdmin, answer: bare(s.updateQueue)},
		{method: "GET", path: "/v1/pauses", scope: ScopeRead, answer: s.listPauses},
		{method: "GET", path: "/v1/queues/{queue}/pauses", scope: ScopeRead, answer: s.listPauses},
		{method: "POST", path: "/v1/queues/{queue}/pause", scope: ScopeOperate, answer: bare(s.pauseQueue)},
		{method: "POST", path: "/v1/queues/{queue}/resume", scope: ScopeOperate, answer: plain(s.resumeQueue)},
		{method: "POST", path: "/v1/queues/{queue}/kinds/pause", scope: ScopeOperate, answer: bare(s.pauseKind(s.pauses()))},
		{method: "POST", path: "/v1/queues/{queue}/kinds/resume", scope: ScopeOperate, answer: bare(s.pauseKind(s.resumes()))},
		{method: "POST", path: "/v1/queues/{queue}/keys/pause", scope: ScopeOperate, answer: bare(s.pauseKey(s.pauses()))},
		{method: "POST", path: "/v1/queues/{queue}/keys/resume", scope: ScopeOperate, answer: bare(s.pauseKey(s.resumes()))},
		{method: "POST", path: "/v1/queues/{queue}/purge", scope: ScopeOperate, answer: plain(s.purgeQueue)},
		{method: "GET", path: "/v1/queues/{queue}/failures", scope: ScopeRead, answer: s.listFailures},
		{method: "GET", path: "/v1/queues/{queue}/samples", scope: ScopeRead, answer: s.showSamples},
		{method: "GET", path: "/v1/queues/{queue}/stats", scope: ScopeRead, answer: s.showStats},

		{method: "GET", path: "/v1/queues/{queue}/subscriptions", scope: ScopeRead, answer: s.subscriptionList().answer(s)},
		{method: "GET", path: "/v1/queues/{queue}/subscriptions/{subscription}", scope: ScopeRead, answer: bare(s.showSubscription)},
		{method: "PUT", path: "/v1/queues/{queue}/subscriptions/{subscription}", scope: ScopeAdmin, answer: bare(s.putSubscription)},
		{method: "DELETE", path: "/v1/queues/{queue}/subscriptions/{subscription}", scope: ScopeAdmin, answer: s.done(s.unsubscribe)},

		{method: "GET", path: "/v1/schedules", scope: ScopeRead, answer: s.scheduleList().answer(s)},
		{method: "GET", path: "/v1/schedules/{schedule}", scope: ScopeRead, answer: bare(s.showSchedule)},
		{method: "PUT", path: "/v1/schedules/{schedule}", scope: ScopeAdmin, answer: bare(s.putSchedule)},
		{method: "DELETE", path: "/v1/schedules/{schedule}", scope: ScopeAdmin, answer: s.done(s.dropSchedule)},
		{method: "POST", path: "/v1/schedules/{schedule}/pause", scope: ScopeOperate, answer: bare(s.pauseSchedule)},
		{method: "POST", path: "/v1/schedules/{schedule}/resume", scope: ScopeOperate, answer: plain(s.resumeSchedule)},
		{method: "POST", path: "/v1/schedules/{schedule}/run", scope: ScopeOperate, answer: plain(s.runSchedule)},
	}
}

// operationRoutes are the operations on the store as a whole, and on this server.
func (s *Server) operationRoutes() []*route {
	return []*route{
		{method: "POST", path: "/v1/erase", scope: ScopeAdmin, answer: bare(s.erase)},
		{method: "GET", path: "/v1/actions", scope: ScopeRead, answer: s.listActions},
		{method: "GET", path: "/v1/failures", scope: ScopeRead, answer: s.listFailures},
		{method: "GET", path: "/v1/samples", scope: ScopeRead, answer: s.showSamples},
		{method: "GET", path: "/v1/stats", scope: ScopeRead, answer: s.showStats},
		{method: "GET", path: "/v1/workers", scope: ScopeRead, answer: s.workerList().answer(s)},
		{method: "GET", path: "/v1/tokens", scope: ScopeAdmin, answer: s.tokenList().answer(s)},
		{method: "GET", path: "/v1/doctor", scope: ScopeRead, answer: s.findingList().answer(s)},

		{method: "GET", path: "/healthz", answer: s.healthz},
		{method: "GET", path: "/readyz", answer: s.readyz},
		{method: "GET", path: "/openapi.json", answer: s.openapi},
		{method: "GET", path: "/docs", answer: s.showDocs},
		{method: "GET", path: "/docs/docs.css", answer: s.showDocs},
		{method: "GET", path: "/docs/docs.js", answer: s.showDocs},
	}
}

func (s *Server) mux(routes []*route, mounts map[string]Mount) *http.ServeMux {
	mux := http.NewServeMux()
	for _, r := range routes {
		mux.Handle(r.method+" "+r.path, s.guard(r))
	}
	s.mounts(mux, mounts)
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
			err = s.limitToken(w, token)
		}
		if err == nil {
			err = cmp.Or(checkPath(r), refuseIdempotencyKey(r, route))
		}
		if err == nil && (route.scope == ScopeAdmin || route.scope == ScopeOperate) { // only operators' actions are recorded
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
