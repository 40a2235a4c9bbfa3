package server

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// What no honest client sends gets a plain answer or none, stores nothing, and
// leaves the server as it was.
func TestHostileRequests(t *testing.T) {
	t.Parallel()
	s := serve(t, time.Minute, &hooked{})
	address := strings.TrimPrefix(s.url, "http://")
	post := func(headers, body string) string {
		return "POST /v1/queues/orders/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + headers + "\r\n" + body
	}
	sized := func(body string) string { return post(fmt.Sprintf("Content-Length: %d\r\n", len(body)), body) }
	for what, c := range map[string]struct {
		send string
		want int
	}{
		"no HTTP":                        {"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400},
		"a header of 100 kB":             {post("X-Long: "+strings.Repeat("x", 100<<10)+"\r\n", ""), 431},
		"10,000 headers":                 {post(strings.Repeat("X-Many: y\r\n", 10_000), ""), 431},
		"a path of 100 kB":               {"GET /" + strings.Repeat("x", 100<<10) + " HTTP/1.1\r\nHost: localhost\r\n\r\n", 431},
		"two lengths":                    {post("Content-Length: 2\r\nContent-Length: 3\r\n", "{} "), 400},
		"a negative length":              {post("Content-Length: -1\r\n", "{}"), 400},
		"length and chunks":              {post("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", "2\r\n{]\r\n0\r\n\r\n"), 400},
		"an unknown transfer encoding":   {post("Transfer-Encoding: gzip\r\n", "{}"), 501},
		"a chunk that is no chunk":       {post("Transfer-Encoding: chunked\r\n", "zz\r\n{}\r\n0\r\n\r\n"), 400},
		"a chunk larger than all memory": {post("Transfer-Encoding: chunked\r\n", "fffffffffffffffff\r\n{}"), 400},
		"a chunk extension of 100 kB":    {post("Transfer-Encoding: chunked\r\n", "2;"+strings.Repeat("x", 100<<10)+"\r\n{]\r\n0\r\n\r\n"), 400},
		"JSON of a million brackets":     {sized(`{"payload":` + strings.Repeat("[", 1e6) + strings.Repeat("]", 1e6) + `}`), 400},
		"JSON of a million objects":      {sized(`{"payload":` + strings.Repeat(`{"a":`, 1e6)), 400},
		"an array of a million":          {sized("[" + strings.Repeat("{},", 1e6) + "{}]"), 400},
		"a number of a million digits":   {sized(`{"delay":` + strings.Repeat("9", 1e6) + "}"), 400},
		"a million fields":               {sized("{" + strings.Repeat(`"payload":1,`, 1e5) + `"payload":1}`), 400},
		"no UTF-8":                       {sized("{\"payload\":\"\xff\xfe\"}"), 400},
		"a form":                         {strings.Replace(sized("payload=1"), "application/json", "application/x-www-form-urlencoded", 1), 415},
		"plain text":                     {strings.Replace(sized(`{"payload":1}`), "application/json", "text/plain", 1), 415},
		"no type":                        {strings.Replace(sized(`{"payload":1}`), "Content-Type: application/json\r\n", "", 1), 415},
		"a part of a compressed body":    {post("Content-Encoding: gzip\r\nContent-Length: 2\r\n", "\x1f\x8b"), 400},
		"a NUL in the path":              {"POST /v1/queues/or%00ders/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", 400},
		"no host":                        {"GET /v1/queues HTTP/1.1\r\n\r\n", 400},
		"two hosts":                      {"GET /v1/queues HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 400},
		"another host in the target":     {"GET http://evil.example/v1/queues HTTP/1.1\r\nHost: localhost\r\n\r\n", 403},
		"a page of another site":         {strings.Replace(sized("{}"), "Host: localhost", "Host: localhost\r\nOrigin: https://evil.example", 1), 403},
		"CONNECT":                        {"CONNECT evil.example:80 HTTP/1.1\r\nHost: evil.example:80\r\n\r\n", 404},
	} {
		t.Run(what, func(t *testing.T) {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(patience))
			// The server may answer and close before it has read everything, so the
			// answer is read meanwhile.
			go func() { _, _ = io.WriteString(conn, c.send) }()
			answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || answer.StatusCode != c.want {
				t.Fatalf("answered %v %v, want %d", answer, err, c.want)
			}
		})
	}
	queues, err := s.engine.Queues(t.Context(), "orders")
	if err != nil || queues[0].Subscriptions[0].Sent != 0 {
		t.Errorf("something was stored: %+v %v", queues, err)
	}
	s.call("POST", "/v1/queues/orders/messages", `{"payload":1}`).want(t, 201)
}

// Five hundred clients that send half a header do not keep other clients out.
func TestIdleConnectionsKeepNobodyOut(t *testing.T) {
	t.Parallel()
	s := serve(t, time.Minute, &hooked{})
	for range 500 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "POST /v1/queues/orders/messages HTTP/1.1\r\nHost: local"); err != nil {
			t.Fatal(err)
		}
	}
	s.call("POST", "/v1/queues/orders/messages", `{"payload":1}`).want(t, 201)
}

// Every answer, also a problem, is kept from other sites' pages; a page's own
// policy stands.
func TestAnswersAreKeptFromOtherSites(t *testing.T) {
	t.Parallel()
	a := newAPI(t, func(c *Config, _ *hooked) {
		c.Mount = map[string]Mount{"/caught": {Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Security-Policy", "default-src 'self'")
		})}}
	})
	for path, policy := range map[string]string{"/v1/queues": "default-src 'none'; frame-ancestors 'none'", "/nothing": "default-src 'none'; frame-ancestors 'none'", "/caught": "default-src 'self'"} {
		got, err := a.client.Get(a.url + path)
		if err != nil {
			t.Fatal(err)
		}
		got.Body.Close()
		referrer := "no-referrer"
		if path == "/caught" {
			referrer = "same-origin"
		}
		for header, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Content-Security-Policy": policy,
			"Cross-Origin-Resource-Policy": "same-origin", "Referrer-Policy": referrer, "Access-Control-Allow-Origin": ""} {
			if got.Header.Get(header) != want {
				t.Errorf("%s: %s is %q, want %q", path, header, got.Header.Get(header), want)
			}
		}
	}
	a.call("GET", "/v1/queues/nowhere", "").wantProblem(t, 404, posthaste.CodeNotFound, "queue")
}
