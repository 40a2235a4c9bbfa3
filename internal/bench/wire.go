package bench

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthaste-mq/posthaste"
)

// wire is a proxy between a client and the server that counts statements: the messages Execute
// and FunctionCall, and the statements of each message Query, which are separated by
// semicolons. For Redis it counts commands (wire_redis.go). The client's side is not encrypted;
// the server's side is encrypted if the URL says so.
type wire struct {
	url        string // for the client
	statements atomic.Int64
	listener   net.Listener
	connect    func() (net.Conn, error)
	// count forwards the client's messages and counts statements.
	count func(server io.Writer, client io.Reader) error
	done  sync.WaitGroup
	mu    sync.Mutex
	open  map[net.Conn]struct{} // nil once closed
}

func openWire(url string) (*wire, error) {
	config, err := pgconn.ParseConfig(url)
	if err != nil {
		return nil, posthaste.Invalidf("database_url", "the database URL cannot be read")
	}
	w := &wire{connect: func() (net.Conn, error) { return dialPostgres(config) }}
	w.count = w.forward
	if err := w.listen(); err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(w.listener.Addr().String())
	// Keywords instead of a URL, because only quotes need escaping in them.
	quote := func(s string) string { return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'" }
	w.url = fmt.Sprintf("host=%s port=%s sslmode=disable user=%s password=%s dbname=%s",
		host, port, quote(config.User), quote(config.Password), quote(config.Database))
	return w, nil
}

func (w *wire) listen() (err error) {
	w.open = map[net.Conn]struct{}{}
	if w.listener, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil {
		return fmt.Errorf("statements cannot be counted: %w", err)
	}
	w.done.Go(w.accept)
	return nil
}

func (w *wire) close() {
	_ = w.listener.Close()
	w.mu.Lock()
	for c := range w.open {
		_ = c.Close()
	}
	w.open = nil
	w.mu.Unlock()
	w.done.Wait()
}

// keep adds a connection for close to end. It returns false after close.
func (w *wire) keep(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open == nil {
		_ = c.Close()
		return false
	}
	w.open[c] = struct{}{}
	return true
}

func (w *wire) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		if !w.keep(client) {
			return
		}
		w.done.Go(func() {
			defer client.Close()
			server, err := w.connect()
			if err != nil || !w.keep(server) {
				return
			}
			defer server.Close()
			w.done.Go(func() {
				_, _ = io.Copy(client, server)
				_ = client.Close()
			})
			_ = w.count(server, client)
		})
	}
}

// dialPostgres connects to the server, encrypted if its URL says so.
func dialPostgres(config *pgconn.Config) (net.Conn, error) {
	network, address := pgconn.NetworkAddress(config.Host, config.Port)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil || config.TLSConfig == nil {
		return conn, err
	}
	answer := make([]byte, 1)
	if _, err = conn.Write(binary.BigEndian.AppendUint32([]byte{0, 0, 0, 8}, 80877103)); err == nil {
		_, err = io.ReadFull(conn, answer)
	}
	if err == nil && answer[0] != 'S' {
		err = errors.New("the server does not support TLS")
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return tls.Client(conn, config.TLSConfig), nil
}

// forward forwards the client's messages and counts statements.
func (w *wire) forward(server io.Writer, client io.Reader) error {
	in := bufio.NewReaderSize(client, 64<<10)
	// The first message has no type: it starts the session, or cancels a request of another.
	head := make([]byte, 5)
	if _, err := io.ReadFull(in, head[1:]); err != nil {
		return err
	}
	if err := pass(server, in, head[1:]); err != nil {
		return err
	}
	for {
		if _, err := io.ReadFull(in, head); err != nil {
			return err
		}
		switch head[0] {
		case 'E', 'F':
			w.statements.Add(1)
		case 'Q':
			text, err := peek(in, head)
			if err != nil {
				return err
			}
			for s := range strings.SplitSeq(text, ";") {
				if strings.Trim(s, "\x00 \t\r\n") != "" {
					w.statements.Add(1)
				}
			}
		}
		if err := pass(server, in, head); err != nil {
			return err
		}
	}
}

// pass writes a header, and the body whose length is in the last four bytes of the header.
func pass(to io.Writer, from io.Reader, head []byte) error {
	body := int64(binary.BigEndian.Uint32(head[len(head)-4:])) - 4
	if body < 0 {
		return fmt.Errorf("a message has the invalid length %d", body)
	}
	message := make([]byte, len(head), len(head)+int(min(body, 1<<20)))
	copy(message, head)
	if body <= 1<<20 { // in one write, so that small messages stay one packet
		message = message[:len(head)+int(body)]
		if _, err := io.ReadFull(from, message[len(head):]); err != nil {
			return err
		}
		_, err := to.Write(message)
		return err
	}
	if _, err := to.Write(message); err != nil {
		return err
	}
	_, err := io.CopyN(to, from, body)
	return err
}

// peek returns the part of a body that is in the buffer, without reading it.
func peek(in *bufio.Reader, head []byte) (string, error) {
	body := int64(binary.BigEndian.Uint32(head[len(head)-4:])) - 4
	b, err := in.Peek(int(max(0, min(body, int64(in.Size())))))
	return string(b), err
}
