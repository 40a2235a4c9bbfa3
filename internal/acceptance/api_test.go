//go:build unix

package acceptance

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/server"
)

// api is an HTTP API that is being served.
type api struct {
	*stage
	base string
}

// answer is its response.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// entries returns the entries of a list, or of another answer that has only an array.
func (a answer) entries(t testing.TB) json.RawMessage {
	t.Helper()
	var list struct {
		Data, Deliveries, Subscriptions json.RawMessage
	}
	if err := json.Unmarshal(a.body, &list); err != nil {
		t.Fatalf("%s: %v", a.body, err)
	}
	for _, all := range []json.RawMessage{list.Data, list.Deliveries, list.Subscriptions} {
		if all != nil {
			return all
		}
	}
	t.Fatalf("not a list: %s", a.body)
	return nil
}

// serve serves the HTTP API on a free port until the test ends.
func (s *stage) serve(engine posthaste.Store, change ...func(*server.Config)) *api {
	s.Helper()
	config := server.Config{Engine: engine, Client: posthaste.NewClient(engine), Logger: s.log}
	for _, c := range change {
		c(&config)
	}
	srv, err := server.New(config)
	s.must(err)
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	s.must(err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(ctx, listener, 5*time.Second) }()
	s.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			s.Errorf("the server ended with %v", err)
		}
	})
	return &api{s, "http://" + listener.Addr().String()}
}

func (a *api) try(method, path, body string, headers ...string) (answer, error) {
	request, err := http.NewRequestWithContext(a.ctx, method, a.base+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, content}, err
}

func (a *api) call(method, path, body string, headers ...string) answer {
	a.Helper()
	got, err := a.try(method, path, body, headers...)
	a.must(err)
	return got
}

// want calls and fails the test unless the status is as expected.
func (a *api) want(status int, method, path, body string, headers ...string) answer {
	a.Helper()
	got := a.call(method, path, body, headers...)
	if got.status != status {
		a.Fatalf("%s %s was answered by %d instead of %d: %s", method, path, got.status, status, got.body)
	}
	return got
}
