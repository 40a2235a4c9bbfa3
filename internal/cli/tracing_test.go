//go:build unix

package cli_test

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// receiver receives spans by OTLP over HTTP, like an OpenTelemetry collector.
type receiver struct {
	*httptest.Server
	mu    sync.Mutex
	spans []string // service, trace and name of each
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		var got collector.ExportTraceServiceRequest
		if err != nil || request.URL.Path != "/v1/traces" || proto.Unmarshal(body, &got) != nil {
			t.Errorf("%s %s is not how traces are sent (%v)", request.Method, request.URL.Path, err)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, resource := range got.ResourceSpans {
			service := ""
			for _, a := range resource.Resource.Attributes {
				if a.Key == "service.name" {
					service = a.Value.GetStringValue()
				}
			}
			for _, scope := range resource.ScopeSpans {
				for _, span := range scope.Spans {
					r.spans = append(r.spans, service+" "+hex.EncodeToString(span.TraceId)+" "+span.Name)
				}
			}
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) got() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.spans, "\n")
}

// The variables of OpenTelemetry enable traces. The last spans are exported when the program
// ends. A mail has one trace, from the request to the sink.
func TestTR1_ServeSendsTraces(t *testing.T) {
	t.Parallel()
	url := testpg.New(t)
	makeEmails(t, url)
	tracesOfServe(t, "DATABASE_URL="+url)
}

func TestTR1_ServeSendsTracesOnRedis(t *testing.T) {
	t.Parallel()
	tracesOfServe(t, "REDIS_URL="+startRedis(t).URL())
}

func TestTR1_ServeSendsTracesOnNATS(t *testing.T) {
	t.Parallel()
	tracesOfServe(t, "NATS_URL="+startNATS(t).URL())
}

func tracesOfServe(t *testing.T, store string) {
	spans := newReceiver(t)
	p, address := startServe(t, []string{store, "SMTP_URL=smtp://127.0.0.1:1?tls=none", "OTEL_EXPORTER_OTLP_ENDPOINT=" + spans.URL, "OTEL_SERVICE_NAME=post"}, "--worker")
	eventually(t, "it is ready", answers("http://"+address+"/readyz", 200))
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	request, err := http.NewRequest("POST", "http://"+address+"/v1/emails", strings.NewReader(aMail))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
	response, err := http.DefaultClient.Do(request)
	if err != nil || response.StatusCode != 201 {
		t.Fatalf("the mail was answered by %v (%v)", response, err)
	}
	response.Body.Close()
	eventually(t, "the mail was tried", func() error { // no server accepts it; a failed attempt has a trace too
		status, err := get("http://"+address+"/metrics", nil)
		if !strings.Contains(p.said(), "an attempt failed") {
			return fmt.Errorf("metrics %d %v, said %q", status, err, p.said())
		}
		return nil
	})
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, name := range []string{"send emails", "process emails", "settle emails"} {
		if want := "post " + trace + " " + name; !strings.Contains(spans.got(), want) {
			t.Errorf("%q was not sent, but\n%s", want, spans.got())
		}
	}
}

// Unsupported values of the variables are errors.
func TestTracesThatCannotBeSentAreRefused(t *testing.T) {
	t.Parallel()
	url := testpg.New(t)
	for _, env := range [][]string{
		{"OTEL_TRACES_EXPORTER=zipkin"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"},
	} {
		p := start(t, "", append(env, "DATABASE_URL="+url), "serve", "--listen", "127.0.0.1:0")
		if code := p.wait(); code != 2 || !strings.Contains(p.said(), env[len(env)-1]) {
			t.Errorf("%v: exit code %d, said %s", env, code, p.said())
		}
	}
	p, address := startServe(t, []string{"DATABASE_URL=" + url, "OTEL_TRACES_EXPORTER=none", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc"})
	eventually(t, "serve runs without traces", answers("http://"+address+"/healthz", 200))
	_ = p.Process.Kill()
}
