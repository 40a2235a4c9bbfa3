package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/posthaste-mq/posthaste"
	httpapi "github.com/posthaste-mq/posthaste/server"
	"github.com/posthaste-mq/posthaste/worker"
)

// httpGrace is the grace period of requests when the HTTP server ends.
const httpGrace = 5 * time.Second

// httpServer runs the HTTP API and upkeep, as "posthaste serve" does. It reports its CPU time
// at each order.
func httpServer(ctx context.Context, o *orders) error {
	log := quiet(slog.Default())
	engine, err := o.first.open(ctx, log)
	if err != nil {
		return err
	}
	defer engine.Close()
	api, err := httpapi.New(httpapi.Config{Engine: engine, Client: posthaste.NewClient(engine), Logger: log})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("the HTTP server cannot listen: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- api.Serve(ctx, listener, httpGrace) }()
	upkept := make(chan struct{})
	go func() {
		defer close(upkept)
		worker.Upkeep(ctx, engine, log)
	}()
	o.tell(report{Ready: true, Address: listener.Addr().String()})
	for range o.next {
		o.tell(report{CPU: ownCPU()})
	}
	<-upkept
	return <-ended
}

// postRequest returns a whole request that sends messages to a queue: one by itself, more as a
// batch.
func postRequest(address, queue string, messages int) []byte {
	type message struct {
		Payload json.RawMessage `json:"payload"`
	}
	path, body := "messages", any(message{payload})
	if messages > 1 {
		many := make([]message, messages)
		for i := range many {
			many[i].Payload = payload
		}
		path, body = "messages/batch", map[string]any{"messages": many}
	}
	encoded, _ := json.Marshal(body) // it is valid
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST /v1/queues/%s/%s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", queue, path, address, len(encoded))
	b.Write(encoded)
	return b.Bytes()
}

// posts is a connection to an HTTP server for one request after the other. The requests are
// prepared, because the work of the client is not measured.
type posts struct {
	// open opens the connection at the first request: the server closes a connection that has
	// none within some seconds.
	open  func() (net.Conn, error)
	conn  net.Conn
	reads *bufio.Reader
	stop  func() bool
}

// newPosts returns a connection to the server, which is closed when ctx ends.
func newPosts(ctx context.Context, address string) *posts {
	p := &posts{stop: func() bool { return false }}
	p.open = func() (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, fmt.Errorf("the HTTP server cannot be reached: %w", err)
		}
		p.stop = context.AfterFunc(ctx, func() { _ = conn.Close() })
		return conn, nil
	}
	return p
}

// post sends a request and reads the response, whose status must be 201.
func (p *posts) post(request []byte) error {
	if p.conn == nil {
		conn, err := p.open()
		if err != nil {
			return err
		}
		p.conn, p.reads = conn, bufio.NewReader(conn)
	}
	if _, err := p.conn.Write(request); err != nil {
		return err
	}
	answer, err := http.ReadResponse(p.reads, nil)
	if err != nil {
		return err
	}
	said, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusCreated {
		return fmt.Errorf("the server answered %s: %s", answer.Status, said)
	}
	return nil
}

func (p *posts) close() {
	p.stop()
	if p.conn != nil {
		_ = p.conn.Close()
	}
}
