package server

import (
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

func jsonLogger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func TestOpenAPIIsValid(t *testing.T) {
	t.Parallel()
	data, err := describe("1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := openapi3.NewLoader().LoadFromData(data)
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context(), openapi3.IsOpenAPI31OrLater()); err != nil {
		t.Fatal(err)
	}
	if doc.OpenAPI != "3.1.0" || doc.Info.Version != "1.2.3" {
		t.Fatalf("OpenAPI %s, version %s", doc.OpenAPI, doc.Info.Version)
	}
}

// Every route is described, and everything described is a route.
func TestOpenAPIHasEveryRoute(t *testing.T) {
	t.Parallel()
	doc, err := spec()
	if err != nil {
		t.Fatal(err)
	}
	var routed, described []string
	for _, r := range newAPI(t).server.routes() {
		routed = append(routed, r.method+" "+r.path)
		operation := doc.Paths.Value(r.path)
		if operation == nil || operation.GetOperation(r.method) == nil {
			continue
		}
		words := operation.GetOperation(r.method).Description
		if r.scope != "" && r.scope != ScopeAny && !strings.Contains(words, "scope "+string(r.scope)) {
			t.Errorf("%s %s needs the scope %q, and the description does not say so", r.method, r.path, r.scope)
		}
	}
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			described = append(described, method+" "+path)
		}
	}
	slices.Sort(routed)
	slices.Sort(described)
	if !slices.Equal(routed, described) {
		t.Fatalf("routes and description differ:\n%s\n%s", strings.Join(routed, "\n"), strings.Join(described, "\n"))
	}
}

// askCharts asks for figures about the past, after a report of a worker.
func askCharts(a *api, worker posthaste.WorkerID, ask func(status int, method, path, body string) reply) {
	a.t.Helper()
	report := posthaste.HandlerStats{Queue: "orders", Subscription: "default", Kind: "k", Done: 3, Failed: 1,
		Errors: []posthaste.ErrorCount{{Fingerprint: "order … failed", Error: "order 7 failed", Message: 7, Count: 1}}}
	report.Run.Add(3 * time.Second)
	if err := a.engine.Report(a.t.Context(), worker, []posthaste.HandlerStats{report}); err != nil {
		a.t.Fatal(err)
	}
	var failures []wire.Failure
	ask(200, "GET", "/v1/failures?queue=orders&subscription=default&kind=k&from=2001-01-01T00:00:00Z&limit=5", "").items(a.t, &failures)
	if len(failures) != 1 || failures[0].Fingerprint != "order … failed" || failures[0].Version != "v" || failures[0].Message != 7 || failures[0].Count != 1 {
		a.t.Errorf("failures: %+v", failures)
	}
	var stats []wire.Stats
	ask(200, "GET", "/v1/stats?queue=orders&kind=k&by=kind,version,worker,queue", "").items(a.t, &stats)
	if len(stats) != 1 || stats[0].Done != 3 || stats[0].Worker != "here/1" || stats[0].Version != "v" || stats[0].Run.P50 == "0s" || len(stats[0].Run.Buckets) != 13 {
		a.t.Errorf("stats: %+v", stats)
	}
	ask(200, "GET", "/v1/queues/orders/failures", "")
	ask(200, "GET", "/v1/queues/orders/stats?step=5m&to=2999-01-01T00:00:00Z", "")
	ask(200, "GET", "/v1/samples?total=true&from=2026-01-01T00:00:00Z&to=2026-01-01T01:00:00Z&step=1m", "")
	ask(200, "GET", "/v1/queues/orders/samples", "")
	for _, wrong := range []string{"/v1/stats?by=day", "/v1/stats?step=90s", "/v1/samples?total=yes", "/v1/samples?step=soon", "/v1/stats?from=2001-01-01T00:00:00Z&step=1m", "/v1/failures?limit=0"} {
		ask(400, "GET", wrong, "")
	}
}

// Every operation is asked once for real; the harness holds both sides of each
// exchange against the description. The end looks that none was forgotten.
func TestOpenAPIMatchesEveryOperation(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	asked := map[string]bool{}
	ask := func(status int, method, path, body string) reply {
		t.Helper()
		doc, _ := spec()
		template, _ := templateOf(doc, path[:len(path)-len(path[strings.IndexByte(path+"?", '?'):])])
		asked[method+" "+template] = true
		return a.call(method, path, body).want(t, status)
	}
	var one wire.Sent
	var got []wire.Delivery

	ask(201, "PUT", "/v1/queues/orders", `{"max_attempts":1,"backoff":{"base":"2s","max":"1 minute"},"timeout":"00:01:00","max_payload":4096,"lanes":2}`)
	ask(200, "PUT", "/v1/queues/orders", `{"max_attempts":1}`)
	ask(201, "PUT", "/v1/queues/emails", ``)
	ask(201, "POST", "/v1/queues/orders/messages", `{"payload":{"a":1},"key":"k","kind":"made","headers":{"h":"v"},"reference":"r-1","terms":["t"],"wake":false}`).into(t, &one)
	ask(201, "POST", "/v1/queues/orders/messages/batch", `{"messages":[{"payload":"AAEC","content_type":"image/png"},{"payload":1,"delay":"1h"},{"payload":2,"send_at":"2030-01-01T00:00:00Z"}]}`)
	ask(200, "GET", "/v1/messages/"+one.ID.String(), "")
	ask(200, "GET", "/v1/messages?queue=orders&reference=r-1&key=k&kind=made&term=t&state=ready,done&created_from=2001-01-01T00:00:00Z&limit=5&cursor="+wire.NewCursor("messages", "99"), "")
	ask(200, "GET", "/v1/queues/orders/messages?kind=made", "")
	ask(200, "GET", "/v1/queues", "")
	ask(200, "GET", "/v1/queues/orders", "")
	ask(200, "POST", "/v1/queues/orders/receive", `{"max":10,"lease":"30s","wait":"1s"}`).items(t, &got)
	if len(got) != 2 || got[0].MaxAttempts != 1 || time.Until(got[0].LeaseUntil) < 20*time.Second || time.Until(got[0].LeaseUntil) > 30*time.Second {
		t.Fatalf("received %+v", got)
	}
	first, second := got[0].ID.String(), got[1].ID.String()
	ask(200, "POST", "/v1/deliveries/extend", `{"deliveries":[{"id":"`+first+`","lease":"1m"}]}`)
	ask(200, "POST", "/v1/deliveries/extend", `{"deliveries":[{"id":"`+first+`","checkpoint":{"row":7},"progress":0.7,"progress_text":"rows","log":"one"},{"id":"`+second+`","lease":"1m","checkpoint":null}]}`)
	ask(200, "GET", "/v1/messages/"+one.ID.String(), "")
	ask(200, "POST", "/v1/deliveries/release", `{"deliveries":[{"id":"`+second+`"}]}`)
	ask(200, "POST", "/v1/deliveries/fail", `{"deliveries":[{"id":"`+first+`","error":"no","permanent":true,"receipt":{"x":1}}]}`)
	ask(200, "GET", "/v1/dead-letters?queue=orders&id="+one.ID.String()+"&limit=1&cursor="+wire.NewCursor(wire.ListDeadLetters, "99"), "")
	ask(200, "GET", "/v1/dead-letters?queue=orders&subscription=default&kind=k&key=k&reference=r&term=t&error=e&died_from=2001-01-01T00:00:00Z&died_before=2001-01-01T00:00:00Z", "")
	ask(200, "POST", "/v1/dead-letters/replay", `{"ids":["`+one.ID.String()+`"]}`)
	ask(200, "POST", "/v1/queues/orders/receive", `{"max":10}`).items(t, &got)
	var ack []string
	for _, d := range got {
		ack = append(ack, `{"id":"`+d.ID.String()+`","receipt":[1]}`)
	}
	ask(200, "POST", "/v1/deliveries/ack", `{"deliveries":[`+strings.Join(ack, ",")+`]}`)
	for _, verb := range []string{"discard", "replay"} {
		at := "/v1/dead-letters/" + a.die("orders").String()
		ask(200, "GET", at, "")
		ask(200, "POST", at+"/"+verb, "")
	}
	for verb, more := range map[string]string{"extend": `{"lease":"1m"}`, "release": `{"after":"0s"}`, "fail": `{"error":"no","retry_after":"0s"}`, "ack": ""} {
		ask(201, "POST", "/v1/queues/orders/messages", `{"payload":1}`)
		ask(200, "POST", "/v1/queues/orders/receive", `{"max":1}`).items(t, &got)
		ask(200, "POST", "/v1/deliveries/"+got[0].ID.String()+"/"+verb, more)
	}
	a.die("orders")
	var dead []wire.DeadLetter
	ask(200, "GET", "/v1/dead-letters", "").items(t, &dead)
	ask(200, "POST", "/v1/dead-letters/discard", `{"ids":["`+dead[0].ID.String()+`","424242"]}`)
	ask(200, "POST", "/v1/dead-letters/discard", `{"filter":{"queue":"orders"},"limit":1}`)
	ask(200, "POST", "/v1/dead-letters/discard", `{"all":true,"limit":1,"cursor":"`+wire.NewCursor(wire.ListDeadLetters, "99")+`"}`)
	ask(200, "POST", "/v1/erase", `{"term":"t","cursor":"`+wire.NewCursor("erase", "9999")+`"}`)
	ask(200, "GET", "/v1/actions?queue=orders&message="+dead[0].ID.String()+"&limit=1&cursor="+wire.NewCursor("actions", "99"), "")
	worker, err := a.engine.Register(t.Context(), posthaste.WorkerInfo{Name: "here/1", Lease: time.Minute, Version: "v"})
	if err != nil {
		t.Fatal(err)
	}
	ask(200, "GET", "/v1/workers", "")
	askCharts(a, worker, ask)
	ask(200, "PATCH", "/v1/queues/orders", `{"timeout":"1m","max_age":null,"backoff":{"base":"2s"}}`)
	ask(400, "PATCH", "/v1/queues/orders", `{"max_attempts":0}`)
	ask(200, "PATCH", "/v1/queues/orders", `{"kinds":{"sms":{"max_attempts":3,"timeout":"10s","backoff":{"base":"1s","max":"1m"}},"fax":null}}`)
	ask(400, "PATCH", "/v1/queues/orders", `{"kinds":{"sms":{"max_attempts":0}}}`)
	ask(200, "POST", "/v1/queues/orders/kinds/pause", `{"kind":"sms","reason":"INC-7","for":"30m"}`)
	ask(200, "GET", "/v1/pauses?limit=1", "")
	ask(200, "GET", "/v1/queues/orders/pauses?cursor="+wire.NewCursor("pauses", "99"), "")
	ask(200, "POST", "/v1/queues/orders/kinds/resume", `{"kind":"sms"}`)
	ask(400, "POST", "/v1/queues/orders/kinds/pause", `{"kind":""}`)
	// Which the engine in memory does not do.
	ask(400, "POST", "/v1/queues/orders/keys/pause", `{"key":"a"}`)
	ask(400, "POST", "/v1/queues/orders/keys/resume", `{"key":"a"}`)
	ask(200, "GET", "/v1/tokens?limit=1", "")
	ask(201, "PUT", "/v1/schedules/beat", `{"queue":"orders","spec":"every 1 hour"}`)
	ask(200, "GET", "/v1/schedules", "")
	ask(200, "GET", "/v1/schedules/beat", "")
	ask(200, "POST", "/v1/schedules/beat/pause", "")
	ask(200, "POST", "/v1/schedules/beat/resume", "")
	ask(201, "POST", "/v1/schedules/beat/run", "")
	ask(204, "DELETE", "/v1/schedules/beat", "")
	ask(201, "POST", "/v1/emails", someEmail).into(t, &one)
	ask(200, "GET", "/v1/emails/"+one.ID.String(), "")
	ask(200, "GET", "/v1/emails?reference=r-7&recipient=grace@example.com&status=scheduled&limit=3&cursor="+wire.NewCursor("emails", "999"), "")
	ask(200, "DELETE", "/v1/emails/"+one.ID.String(), "")
	ask(201, "POST", "/v1/queues/orders/messages", `{"payload":1}`).into(t, &one)
	ask(200, "POST", "/v1/messages/"+one.ID.String()+"/reschedule", `{"send_at":"2099-01-01T00:00:00Z"}`)
	ask(200, "POST", "/v1/messages/"+one.ID.String()+"/run", "")
	a.call("PATCH", "/v1/messages/"+one.ID.String(), `{"payload":2,"key":"k","kind":null,"headers":{"a":"b"},"reference":"r","terms":["t"],"priority":1}`, "If-Match", "*").want(t, 200)
	asked["PATCH /v1/messages/{id}"] = true // the only one that needs a header
	ask(200, "DELETE", "/v1/messages/"+one.ID.String(), "")
	ask(200, "PUT", "/v1/queues/orders/subscriptions/default", "{}")
	ask(200, "GET", "/v1/queues/orders/subscriptions/default", "")
	ask(200, "GET", "/v1/queues/orders/subscriptions", "")
	ask(409, "DELETE", "/v1/queues/orders/subscriptions/default", "")
	ask(200, "POST", "/v1/queues/orders/purge", "")
	ask(200, "GET", "/v1/doctor", "")
	ask(200, "POST", "/v1/queues/orders/pause", "")
	ask(200, "POST", "/v1/queues/orders/resume", "")
	ask(200, "GET", "/healthz", "")
	ask(200, "GET", "/readyz", "")
	ask(200, "GET", "/metrics", "")
	for _, file := range []string{"", "/docs.css", "/docs.js"} {
		ask(200, "GET", "/docs"+file, "")
	}
	var doc map[string]any
	ask(200, "GET", "/openapi.json", "").into(t, &doc)
	ask(204, "DELETE", "/v1/queues/orders", "")

	for _, r := range a.server.routes() {
		if !asked[r.method+" "+r.path] {
			t.Errorf("%s %s was not asked", r.method, r.path)
		}
	}
	if doc["openapi"] != "3.1.0" {
		t.Error("/openapi.json is not OpenAPI 3.1")
	}
}

// The description would notice if an answer changed.
func TestOpenAPINoticesDrift(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.queue("orders")
	for path, bodies := range map[string][]string{
		"/v1/queues":         {`{"data":[{"name":"x"}],"has_more":false}`, `{}`, `[]`, `{"data":[]}`, `{"data":[1],"has_more":false}`},
		"/v1/queues/orders":  {`{"name":"x"}`},
		"/v1/workers":        {`{"data":[{"id":7,"name":"x","started_at":"2030-01-01T00:00:00Z","heartbeat_at":"2030-01-01T00:00:00Z"}],"has_more":false}`},
		"/v1/messages":       {`{"data":[{"id":"1","queue":"q","content_type":"a/b","created_at":"2030-01-01T00:00:00Z","subscriptions":[],"more":1}],"has_more":false}`},
		"/v1/emails/1":       {`{"id":"1","status":"lost","created_at":"2030-01-01T00:00:00Z","attempts":[]}`},
		"/v1/queues/a/b/c/d": {`{}`},
	} {
		for _, body := range bodies {
			r := a.request(t.Context(), "GET", path, "")
			got := reply{status: 200, header: http.Header{"Content-Type": {"application/json"}}, body: []byte(body)}
			if holdAgainstSpec(r, "", got) == nil {
				t.Errorf("%s of %s passes", body, path)
			}
		}
	}
	r := a.request(t.Context(), "GET", "/v1/queues", "")
	good := a.call("GET", "/v1/queues", "").want(t, 200)
	good.header.Set("Content-Type", "text/html")
	if holdAgainstSpec(r, "", good) == nil {
		t.Error("another content type passes")
	}
}

// die makes a dead letter.
func (a *api) die(queue string) posthaste.MessageID {
	a.t.Helper()
	var sent wire.Sent
	a.call("POST", "/v1/queues/"+queue+"/messages", `{"payload":1}`).want(a.t, 201).into(a.t, &sent)
	var got []wire.Delivery
	a.call("POST", "/v1/queues/"+queue+"/receive", "").want(a.t, 200).items(a.t, &got)
	a.call("POST", "/v1/deliveries/"+got[0].ID.String()+"/fail", `{"error":"bad","permanent":true}`).want(a.t, 200)
	return sent.ID
}

const someEmail = `{"from":"Ada <ada@example.com>","to":["grace@example.com"],"cc":["c@example.com"],"bcc":["b@example.com"],
	"reply_to":"r@example.com","subject":"Hello","text":"Hi","html":"<p>Hi</p>","headers":{"X-Order":"7"},
	"attachments":[{"filename":"a.txt","content_type":"text/plain","content":"aGk="}],"reference":"r-7","send_at":"2031-01-01T00:00:00Z"}`
