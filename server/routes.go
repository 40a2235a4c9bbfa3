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
		routes = append(routes, &route{method: "GET", path: "/metrics", scope: ScopeAny, handler: s.showMetrics})
	}
	return routes
}

// messageRoutes are the operations on messages, deliveries, e-mails and dead letters.
func (s *Server) messageRoutes() []*route {
	return []*route{
		{method: "POST", path: "/v1/queues/{queue}/messages", scope: ScopeSend, handler: withoutQuery(s.sendMessage), body: maxBody, idempotent: true},
		{method: "POST", path: "/v1/queues/{queue}/messages/batch", scope: ScopeSend, handler: withoutQuery(s.sendMessages), body: maxBody, idempotent: true},
		{method: "GET", path: "/v1/queues/{queue}/messages", scope: ScopeRead, handler: s.listMessages},
		{method: "POST", path: "/v1/queues/{queue}/receive", scope: ScopeReceive, handler: withoutQuery(s.receive)},

		{method: "POST", path: "/v1/deliveries/ack", scope: ScopeReceive, handler: withoutQuery(s.settleMany(ackFields)), body: deliveriesBody, queues: true},
		{method: "POST", path: "/v1/deliveries/fail", scope: ScopeReceive, handler: withoutQuery(s.settleMany(failFields)), body: deliveriesBody, queues: true},
		{method: "POST", path: "/v1/deliveries/release", scope: ScopeReceive, handler: withoutQuery(s.settleMany(releaseFields)), body: deliveriesBody, queues: true},
		{method: "POST", path: "/v1/deliveries/extend", scope: ScopeReceive, handler: withoutQuery(s.extendMany), body: deliveriesBody, queues: true},
		{method: "POST", path: "/v1/deliveries/{id}/ack", scope: ScopeReceive, handler: withoutQuery(s.settleOne(ackFields)), queues: true},
		{method: "POST", path: "/v1/deliveries/{id}/fail", scope: ScopeReceive, handler: withoutQuery(s.settleOne(failFields)), queues: true},
		{method: "POST", path: "/v1/deliveries/{id}/release", scope: ScopeReceive, handler: withoutQuery(s.settleOne(releaseFields)), queues: true},
		{method: "POST", path: "/v1/deliveries/{id}/extend", scope: ScopeReceive, handler: withoutQuery(s.extendOne), queues: true},

		{method: "GET", path: "/v1/messages", scope: ScopeRead, handler: s.listMessages},
		{method: "GET", path: "/v1/messages/{id}", scope: ScopeRead, own: true, handler: withoutQuery(s.showMessage), queues: true},
		{method: "PATCH", path: "/v1/messages/{id}", scope: ScopeOperate, handler: withoutQuery(s.updateMessage)},
		{method: "DELETE", path: "/v1/messages/{id}", scope: ScopeOperate, handler: withoutInput(s.cancelMessage)},
		{method: "POST", path: "/v1/messages/{id}/reschedule", scope: ScopeOperate, handler: withoutQuery(s.rescheduleMessage)},
		{method: "POST", path: "/v1/messages/{id}/run", scope: ScopeOperate, handler: withoutInput(s.runMessage)},

		{method: "POST", path: "/v1/emails", scope: ScopeSend, handler: withoutQuery(s.sendEmail), body: maxBody, queues: true, idempotent: true},
		{method: "GET", path: "/v1/emails", scope: ScopeRead, handler: s.listEmails},
		{method: "GET", path: "/v1/emails/{id}", scope: ScopeRead, own: true, handler: withoutQuery(s.showEmail), queues: true},
		{method: "DELETE", path: "/v1/emails/{id}", scope: ScopeOperate, handler: withoutInput(s.cancelEmail)},

		{method: "GET", path: "/v1/dead-letters", scope: ScopeRead, handler: s.listDeadLetters},
		{method: "POST", path: "/v1/dead-letters/replay", scope: ScopeOperate, handler: withoutQuery(s.decideDeadLetters(s.engine.Replay))},
		{method: "POST", path: "/v1/dead-letters/discard", scope: ScopeOperate, handler: withoutQuery(s.decideDeadLetters(s.engine.Discard))},
		{method: "GET", path: "/v1/dead-letters/{id}", scope: ScopeRead, handler: s.showDeadLetter},
		{method: "POST", path: "/v1/dead-letters/{id}/replay", scope: ScopeOperate, handler: withoutInput(s.decideDeadLetter(s.engine.Replay))},
		{method: "POST", path: "/v1/dead-letters/{id}/discard", scope: ScopeOperate, handler: withoutInput(s.decideDeadLetter(s.engine.Discard))},
	}
}

// queueRoutes are the operations on queues, subscriptions and schedules.
func (s *Server) queueRoutes() []*route {
	return []*route{
		{method: "GET", path: "/v1/queues", scope: ScopeRead, handler: s.queueList().handler(s)},
		{method: "GET", path: "/v1/queues/{queue}", scope: ScopeRead, handler: withoutQuery(s.showQueue)},
		{method: "PUT", path: "/v1/queues/{queue}", scope: ScopeAdmin, handler: withoutQuery(s.putQueue)},
		{method: "DELETE", path: "/v1/queues/{queue}", scope: ScopeAdmin, handler: s.done(s.dropQueue)},
		{method: "PATCH", path: "/v1/queues/{queue}", scope: ScopeAdmin, handler: withoutQuery(s.updateQueue)},
		{method: "GET", path: "/v1/pauses", scope: ScopeRead, handler: s.listPauses},
		{method: "GET", path: "/v1/queues/{queue}/pauses", scope: ScopeRead, handler: s.listPauses},
		{method: "POST", path: "/v1/queues/{queue}/pause", scope: ScopeOperate, handler: withoutQuery(s.pauseQueue)},
		{method: "POST", path: "/v1/queues/{queue}/resume", scope: ScopeOperate, handler: withoutInput(s.resumeQueue)},
		{method: "POST", path: "/v1/queues/{queue}/kinds/pause", scope: ScopeOperate, handler: withoutQuery(s.pauseKind(s.pauses()))},
		{method: "POST", path: "/v1/queues/{queue}/kinds/resume", scope: ScopeOperate, handler: withoutQuery(s.pauseKind(s.resumes()))},
		{method: "POST", path: "/v1/queues/{queue}/keys/pause", scope: ScopeOperate, handler: withoutQuery(s.pauseKey(s.pauses()))},
		{method: "POST", path: "/v1/queues/{queue}/keys/resume", scope: ScopeOperate, handler: withoutQuery(s.pauseKey(s.resumes()))},
		{method: "POST", path: "/v1/queues/{queue}/purge", scope: ScopeOperate, handler: withoutInput(s.purgeQueue)},
		{method: "GET", path: "/v1/queues/{queue}/failures", scope: ScopeRead, handler: s.listFailures},
		{method: "GET", path: "/v1/queues/{queue}/samples", scope: ScopeRead, handler: s.showSamples},
		{method: "GET", path: "/v1/queues/{queue}/stats", scope: ScopeRead, handler: s.showStats},

		{method: "GET", path: "/v1/queues/{queue}/subscriptions", scope: ScopeRead, handler: s.subscriptionList().handler(s)},
		{method: "GET", path: "/v1/queues/{queue}/subscriptions/{subscription}", scope: ScopeRead, handler: withoutQuery(s.showSubscription)},
		{method: "PUT", path: "/v1/queues/{queue}/subscriptions/{subscription}", scope: ScopeAdmin, handler: withoutQuery(s.putSubscription)},
		{method: "DELETE", path: "/v1/queues/{queue}/subscriptions/{subscription}", scope: ScopeAdmin, handler: s.done(s.unsubscribe)},

		{method: "GET", path: "/v1/schedules", scope: ScopeRead, handler: s.scheduleList().handler(s)},
		{method: "GET", path: "/v1/schedules/{schedule}", scope: ScopeRead, handler: withoutQuery(s.showSchedule)},
		{method: "PUT", path: "/v1/schedules/{schedule}", scope: ScopeAdmin, handler: withoutQuery(s.putSchedule)},
		{method: "DELETE", path: "/v1/schedules/{schedule}", scope: ScopeAdmin, handler: s.done(s.dropSchedule)},
		{method: "POST", path: "/v1/schedules/{schedule}/pause", scope: ScopeOperate, handler: withoutQuery(s.pauseSchedule)},
		{method: "POST", path: "/v1/schedules/{schedule}/resume", scope: ScopeOperate, handler: withoutInput(s.resumeSchedule)},
		{method: "POST", path: "/v1/schedules/{schedule}/run", scope: ScopeOperate, handler: withoutInput(s.runSchedule)},
	}
}

// operationRoutes are the operations on the store as a whole, and on this server.
func (s *Server) operationRoutes() []*route {
	return []*route{
		{method: "POST", path: "/v1/erase", scope: ScopeAdmin, handler: withoutQuery(s.erase)},
		{method: "GET", path: "/v1/actions", scope: ScopeRead, handler: s.listActions},
		{method: "GET", path: "/v1/failures", scope: ScopeRead, handler: s.listFailures},
		{method: "GET", path: "/v1/samples", scope: ScopeRead, handler: s.showSamples},
		{method: "GET", path: "/v1/stats", scope: ScopeRead, handler: s.showStats},
		{method: "GET", path: "/v1/workers", scope: ScopeRead, handler: s.workerList().handler(s)},
		{method: "GET", path: "/v1/tokens", scope: ScopeAdmin, handler: s.tokenList().handler(s)},
		{method: "GET", path: "/v1/doctor", scope: ScopeRead, handler: s.findingList().handler(s)},

		{method: "GET", path: "/healthz", handler: s.healthz},
		{method: "GET", path: "/readyz", handler: s.readyz},
		{method: "GET", path: "/openapi.json", handler: s.openapi},
		{method: "GET", path: "/docs", handler: s.showDocs},
		{method: "GET", path: "/docs/docs.css", handler: s.showDocs},
		{method: "GET", path: "/docs/docs.js", handler: s.showDocs},
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

// guard passes a request to the route's handler if its token allows it, and writes the
// error that the handler returns.
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
			err = route.handler(w, r)
		}
		if err != nil {
			s.writeError(w, r, err)
		}
	})
}
