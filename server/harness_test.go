package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/memory"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// hooked is an engine whose calls a test can watch or replace.
type hooked struct {
	posthaste.Store
	send    func(context.Context, ...posthaste.Message) ([]posthaste.Sent, error)
	receive func(context.Context, posthaste.ReceiveRequest) (posthaste.ReceiveReply, error)
	settle  func(context.Context, []posthaste.Settlement) ([]posthaste.SettleResult, error)
	message func(context.Context, posthaste.MessageID) (posthaste.MessageInfo, error)
	list    func(context.Context, posthaste.MessageFilter) (posthaste.Page[posthaste.MessageInfo], error)
	queues  func(context.Context, ...string) ([]posthaste.QueueInfo, error)
	ready   func(context.Context) error
	inForce func(context.Context, ...string) ([]posthaste.Token, bool, error)
	extend  func(context.Context, posthaste.ExtendRequest) ([]posthaste.SettleResult, error)
	of      func(context.Context, ...posthaste.DeliveryID) ([]string, error)
	pause   func(context.Context, posthaste.Pausable) error
	doctor  func(context.Context) ([]posthaste.Finding, error)
}

func (h *hooked) Doctor(ctx context.Context) ([]posthaste.Finding, error) {
	if h.doctor != nil {
		return h.doctor(ctx)
	}
	return h.Store.Doctor(ctx)
}

func (h *hooked) Pause(ctx context.Context, what posthaste.Pausable, o posthaste.PauseOptions) error {
	if h.pause != nil {
		return h.pause(ctx, what)
	}
	return h.Store.Pause(ctx, what, o)
}

func (h *hooked) TokensInForce(ctx context.Context, used ...string) ([]posthaste.Token, bool, error) {
	if h.inForce != nil {
		return h.inForce(ctx, used...)
	}
	return h.Store.TokensInForce(ctx, used...)
}

func (h *hooked) Send(ctx context.Context, m ...posthaste.Message) ([]posthaste.Sent, error) {
	if h.send != nil {
		return h.send(ctx, m...)
	}
	return h.Store.Send(ctx, m...)
}

func (h *hooked) Receive(ctx context.Context, r posthaste.ReceiveRequest) (posthaste.ReceiveReply, error) {
	if h.receive != nil {
		return h.receive(ctx, r)
	}
	return h.Store.Receive(ctx, r)
}

func (h *hooked) Settle(ctx context.Context, s []posthaste.Settlement) ([]posthaste.SettleResult, error) {
	if h.settle != nil {
		return h.settle(ctx, s)
	}
	return h.Store.Settle(ctx, s)
}

func (h *hooked) Extend(ctx context.Context, r posthaste.ExtendRequest) ([]posthaste.SettleResult, error) {
	if h.extend != nil {
		return h.extend(ctx, r)
	}
	return h.Store.Extend(ctx, r)
}

func (h *hooked) DeliveryQueues(ctx context.Context, ids ...posthaste.DeliveryID) ([]string, error) {
	if h.of != nil {
		return h.of(ctx, ids...)
	}
	return h.Store.DeliveryQueues(ctx, ids...)
}

func (h *hooked) Message(ctx context.Context, id posthaste.MessageID) (posthaste.MessageInfo, error) {
	if h.message != nil {
		return h.message(ctx, id)
	}
	return h.Store.Message(ctx, id)
}

func (h *hooked) Messages(ctx context.Context, f posthaste.MessageFilter) (posthaste.Page[posthaste.MessageInfo], error) {
	if h.list != nil {
		return h.list(ctx, f)
	}
	return h.Store.Messages(ctx, f)
}

func (h *hooked) Queues(ctx context.Context, names ...string) ([]posthaste.QueueInfo, error) {
	if h.queues != nil {
		return h.queues(ctx, names...)
	}
	return h.Store.Queues(ctx, names...)
}

func (h *hooked) Ready(ctx context.Context) error {
	if h.ready != nil {
		return h.ready(ctx)
	}
	return h.Store.Ready(ctx)
}

// api is a server under test. Every exchange through it is held against
// openapi.yaml.
type api struct {
	t      *testing.T
	engine *hooked
	server *Server
	url    string
	client *http.Client
	dial   func(context.Context) (net.Conn, error)
	token  string
	log    *logBuffer
	// findings and subscriptions are those of newListedAPI.
	findings      []posthaste.Finding
	subscriptions []posthaste.SubscriptionInfo
}

// logBuffer keeps the log for tests that look into it.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// openEngine opens an engine whose keys or streams begin with a prefix.
type openEngine func(t *testing.T, prefix string) (posthaste.Store, error)

// otherEngines are the engines of tests within another one, by its name: see runOn.
var (
	otherEngines   = map[string]openEngine{}
	enginePrefixes atomic.Int64
)

// newEngine opens the store of a test, in memory unless the test runs within one of otherEngines.
func newEngine(t *testing.T) posthaste.Store {
	t.Helper()
	around, _, within := strings.Cut(t.Name(), "/")
	open := otherEngines[around]
	if !within || open == nil {
		return memory.Open()
	}
	e, err := open(t, fmt.Sprintf("test%d", enginePrefixes.Add(1)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func newAPI(t *testing.T, change ...func(*Config, *hooked)) *api {
	t.Helper()
	a := &api{t: t, engine: &hooked{Store: newEngine(t)}, log: &logBuffer{}}
	config := Config{
		Engine: a.engine, Logger: jsonLogger(a.log),
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; version=0.0.4")
			_, _ = io.WriteString(w, "up 1\n")
		}),
		// Nothing in these tests may depend on the look that finds what does
		// not ring; where one does, the test hangs instead of being slow.
		LookInterval: time.Hour,
	}
	for _, c := range change {
		c(&config, a.engine)
	}
	server, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	a.server = server
	listening := newPipes()
	a.url, a.client, a.dial = "http://"+loopback.String(), listening.client(), listening.dial
	t.Cleanup(server.Close)
	listening.handle(t, server, a.client)
	t.Cleanup(server.gatherer.drain)
	return a
}

func (a *api) queue(name string) {
	a.t.Helper()
	if err := a.engine.CreateQueue(a.t.Context(), name, posthaste.QueueOptions{}); err != nil {
		a.t.Fatal(err)
	}
}

// reply is an answer, read whole.
type reply struct {
	status int
	header http.Header
	body   []byte
}

func (a *api) request(ctx context.Context, method, path, body string, headers ...string) *http.Request {
	a.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, a.url+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if a.token != "" {
		r.Header.Set("Authorization", "Bearer "+a.token)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	return r
}

// call asks and holds question and answer against openapi.yaml.
func (a *api) call(method, path, body string, headers ...string) reply {
	a.t.Helper()
	got, err := a.try(a.t.Context(), method, path, body, headers...)
	if err != nil {
		a.t.Fatalf("%s %s: %v", method, path, err)
	}
	return got
}

func (a *api) try(ctx context.Context, method, path, body string, headers ...string) (reply, error) {
	r := a.request(ctx, method, path, body, headers...)
	response, err := a.client.Do(r)
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return reply{}, err
	}
	got := reply{response.StatusCode, response.Header, answer}
	if err := holdAgainstSpec(r, body, got); err != nil {
		return got, fmt.Errorf("%s %s → %d %s does not fit openapi.yaml: %w", method, path, got.status, answer, err)
	}
	return got, nil
}

func (r reply) into(t *testing.T, value any) {
	t.Helper()
	if err := json.Unmarshal(r.body, value); err != nil {
		t.Fatalf("%s: %v", r.body, err)
	}
}

// items reads the entries of a list, or of another answer that has only an array.
func (r reply) items(t *testing.T, entries any) {
	t.Helper()
	var answer struct {
		Data, Deliveries, Subscriptions json.RawMessage
	}
	r.into(t, &answer)
	for _, all := range []json.RawMessage{answer.Data, answer.Deliveries, answer.Subscriptions} {
		if all != nil {
			if err := json.Unmarshal(all, entries); err != nil {
				t.Fatalf("%s: %v", r.body, err)
			}
			return
		}
	}
	t.Fatalf("not a list: %s", r.body)
}

// next returns the cursor of the next page; "" on the last one.
func (r reply) next(t *testing.T) string {
	t.Helper()
	var page wire.Listed[json.RawMessage]
	r.into(t, &page)
	if page.HasMore != (page.Next != "") || page.Data == nil {
		t.Fatalf("not a page: %s", r.body)
	}
	return page.Next
}

func (r reply) problem(t *testing.T) wire.Problem {
	t.Helper()
	var p wire.Problem
	if got := r.header.Get("Content-Type"); got != "application/problem+json" {
		t.Fatalf("Content-Type is %q, body %s", got, r.body)
	}
	r.into(t, &p)
	if p.Status != r.status || p.Detail == "" || p.Title == "" || p.Type != "urn:posthaste:error:"+string(p.Code) {
		t.Fatalf("not a whole problem: %s", r.body)
	}
	return p
}

// want fails unless the status is as expected.
func (r reply) want(t *testing.T, status int) reply {
	t.Helper()
	if r.status != status {
		t.Fatalf("status %d instead of %d: %s", r.status, status, r.body)
	}
	return r
}

func (r reply) wantProblem(t *testing.T, status int, code posthaste.Code, field string) wire.Problem {
	t.Helper()
	p := r.want(t, status).problem(t)
	if p.Code != code || p.Field != field {
		t.Fatalf("code %q field %q instead of %q %q: %s", p.Code, p.Field, code, field, r.body)
	}
	return p
}

// spec is openapi.yaml, with answers closed to fields that it does not name:
// clients must let new fields pass, our own description must not miss any.
var spec = sync.OnceValues(func() (*openapi3.T, error) {
	data, err := describe("test")
	if err != nil {
		return nil, err
	}
	var doc map[string]any
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	schemas := doc["components"].(map[string]any)["schemas"].(map[string]any)
	for _, name := range []string{"SentOne", "Attempt", "MessageState", "QueueOptions", "MailAnswer", "Fault", "Delivery", "SettledDelivery", "Message", "Queue", "SubscriptionCount", "DeadLetter", "Action", "Worker", "Email", "Problem"} {
		schema := schemas[name].(map[string]any)
		schema["additionalProperties"] = false
	}
	anyJSON(doc)
	if data, err = json.Marshal(doc); err != nil {
		return nil, err
	}
	return openapi3.NewLoader().LoadFromData(data)
})

func init() {
	for _, media := range []string{"text/html", "text/css", "text/javascript"} {
		openapi3filter.RegisterBodyDecoder(media, openapi3filter.FileBodyDecoder)
	}
}

// anyJSON lists the types of schemas that have none, which allow any value: the validator would
// reject null.
func anyJSON(node any) {
	switch node := node.(type) {
	case []any:
		for _, each := range node {
			anyJSON(each)
		}
	case map[string]any:
		for name, each := range node {
			schema, ok := each.(map[string]any)
			_, described := schema["description"]
			if ok && described && len(schema) == 1 && name != "204" {
				schema["type"] = []any{"object", "array", "string", "number", "boolean", "null"}
			}
			anyJSON(each)
		}
	}
}

// templateOf finds the path of the description that a URL's path fits.
func templateOf(doc *openapi3.T, path string) (template string, params map[string]string) {
	given := strings.Split(path, "/")
	best := -1
	for candidate := range doc.Paths.Map() {
		parts := strings.Split(candidate, "/")
		if len(parts) != len(given) {
			continue
		}
		found, literal := map[string]string{}, 0
		for i, part := range parts {
			if strings.HasPrefix(part, "{") {
				found[strings.Trim(part, "{}")] = given[i]
			} else if part == given[i] {
				literal++
			} else {
				found = nil
				break
			}
		}
		if found != nil && literal > best {
			template, params, best = candidate, found, literal
		}
	}
	return template, params
}

func holdAgainstSpec(r *http.Request, body string, got reply) error {
	doc, err := spec()
	if err != nil {
		return err
	}
	template, params := templateOf(doc, r.URL.Path)
	if template == "" || doc.Paths.Value(template).GetOperation(r.Method) == nil {
		if got.status < 400 {
			return fmt.Errorf("it is not described at all")
		}
		return nil
	}
	item := doc.Paths.Value(template)
	again := r.Clone(r.Context())
	again.Body = io.NopCloser(strings.NewReader(body))
	input := &openapi3filter.RequestValidationInput{
		Request: again, PathParams: params,
		Route:   &routers.Route{Spec: doc, Path: template, PathItem: item, Method: r.Method, Operation: item.GetOperation(r.Method)},
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true},
	}
	if got.status < 300 {
		if err := openapi3filter.ValidateRequest(r.Context(), input); err != nil {
			return fmt.Errorf("an accepted request is not described: %w", err)
		}
	}
	return openapi3filter.ValidateResponse(r.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: got.status, Header: got.header, Options: input.Options,
		Body: io.NopCloser(bytes.NewReader(got.body)),
	})
}
