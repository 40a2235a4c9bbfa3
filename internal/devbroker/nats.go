//go:build unix

package devbroker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// NATS is a NATS server with JetStream on the loopback address, in this process.
// Its methods are not for concurrent use.
type NATS struct {
	options server.Options
	server  *server.Server
}

// StartNATS starts a server whose streams lie below dir, and waits until it takes
// connections. change, if not nil, changes its options.
func StartNATS(ctx context.Context, dir string, change func(*server.Options)) (*NATS, error) {
	port, err := TakePort()
	if err != nil {
		return nil, err
	}
	n := &NATS{options: server.Options{Host: "127.0.0.1", Port: port, JetStream: true, StoreDir: dir, NoLog: true, NoSigs: true}}
	if change != nil {
		change(&n.options)
	}
	return n, n.Start(ctx)
}

// StartNATSTLS is StartNATS of a server that takes connections with TLS alone, at the
// certificates' address.
func StartNATSTLS(ctx context.Context, dir string, c *Certificates) (*NATS, error) {
	pair, err := tls.LoadX509KeyPair(c.server, c.key())
	if err != nil {
		return nil, err
	}
	return StartNATS(ctx, dir, func(o *server.Options) {
		o.Port, o.TLS, o.TLSTimeout = c.port, true, 30
		o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	})
}

// Start starts it again after Stop, with the streams that it had, on the same port.
func (n *NATS) Start(ctx context.Context) error {
	options := n.options // the server keeps and changes what it gets
	s, err := server.NewServer(&options)
	if err != nil {
		return fmt.Errorf("NATS did not start: %w", err)
	}
	n.server = s
	go s.Start()
	for !s.ReadyForConnections(100 * time.Millisecond) {
		if ctx.Err() != nil || !s.Running() && s.Addr() != nil {
			n.Stop()
			return errors.Join(errors.New("NATS did not start"), ctx.Err())
		}
	}
	return nil
}

// URL is where it is reached.
func (n *NATS) URL() string { return "nats://" + n.Address() }

// Address is its host and port.
func (n *NATS) Address() string { return fmt.Sprintf("127.0.0.1:%d", n.options.Port) }

// Stop ends it, with its data kept.
func (n *NATS) Stop() {
	n.server.Shutdown()
	n.server.WaitForShutdown()
}
