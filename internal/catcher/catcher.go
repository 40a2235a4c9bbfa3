// Package catcher is an SMTP server that keeps and shows the mails that it receives, instead
// of forwarding them. `posthaste up` and the tests use it. Tests can make it fail in every way
// in which a server can fail.
package catcher

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/emersion/go-smtp"
)

// Config configures a catcher. The zero value keeps mails in memory and listens on a free port
// of 127.0.0.1.
type Config struct {
	// Addr is the address to listen on (default "127.0.0.1:0", any free port).
	Addr string
	// Dir stores the mails as .eml files, so that they outlive the process. It is created if
	// missing. If empty, mails are only in memory.
	Dir string
	// MaxMails is the number of mails kept; the oldest are removed first (default 1,000).
	MaxMails int
	// MaxBytes is the total size of the kept mails, as received (default 128 MiB). The newest
	// mail is kept whatever its size.
	MaxBytes int64
	// MaxMessageBytes is the maximum size of a mail, which the server announces (default 32
	// MiB).
	MaxMessageBytes int64
	// MaxRecipients is the maximum number of recipients of a transaction (default: unlimited).
	MaxRecipients int
	// TLS offers STARTTLS with a certificate created for this catcher.
	TLS bool
	// ImplicitTLS requires TLS from the first byte instead.
	ImplicitTLS bool
	// Username and Password, if set, are required from clients.
	Username, Password string
	// InsecureAuth also offers authentication without TLS.
	InsecureAuth bool
	// AuthMechanisms are offered if Username is set (default PLAIN and LOGIN).
	AuthMechanisms []string
	// Without lists extensions that are not announced: SMTPUTF8, and on connections without
	// TLS 8BITMIME, PIPELINING, ENHANCEDSTATUSCODES and LIMITS.
	Without []string
	// Logger receives errors (default: none).
	Logger *slog.Logger
	// Kept, if set, is called with each mail after it is stored. The client gets its answer
	// when the call returns: success, or the answer of a [Fault]. Calls may run concurrently.
	Kept func(m Mail, success bool)
}

// Catcher is a running mail catcher. Its methods are safe for concurrent use.
type Catcher struct {
	cfg      Config
	server   *smtp.Server
	listener net.Listener
	tls      *tlsMaterial
	stop     chan struct{}
	stopOnce sync.Once
	stopped  chan struct{}
	faults   faults

	mu      sync.Mutex
	mails   []*Mail // the elements are never changed
	bytes   int64
	lastID  int64
	changed chan struct{} // closed and replaced at every change
	stats   Stats
	conns   map[*hookConn]struct{}
}

// Stats counts the clients' actions.
type Stats struct {
	// Connections counts accepted connections, Transactions those begun by MAIL.
	Connections, Transactions int
	// Open is the number of open connections.
	Open int
}

// Start listens, loads the mails in Dir, and runs until [Catcher.Close].
func Start(cfg Config) (*Catcher, error) {
	if cfg.Addr == "" {
		cfg.Addr = "127.0.0.1:0"
	}
	if cfg.MaxMails <= 0 {
		cfg.MaxMails = 1000
	}
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = 128 << 20
	}
	if cfg.MaxMessageBytes <= 0 {
		cfg.MaxMessageBytes = 32 << 20
	}
	if cfg.AuthMechanisms == nil {
		cfg.AuthMechanisms = []string{"PLAIN", "LOGIN"}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Catcher{cfg: cfg, stop: make(chan struct{}), stopped: make(chan struct{}), changed: make(chan struct{}),
		conns: map[*hookConn]struct{}{}}
	if err := c.load(); err != nil {
		return nil, err
	}
	if err := c.listen(); err != nil {
		return nil, err
	}
	go func() {
		defer close(c.stopped)
		var l net.Listener = &listener{Listener: c.listener, catcher: c}
		if cfg.ImplicitTLS {
			l = tls.NewListener(l, c.server.TLSConfig)
		}
		if err := c.server.Serve(l); err != nil {
			cfg.Logger.Error("mail catcher stopped", "error", err)
		}
	}()
	return c, nil
}

func (c *Catcher) listen() error {
	s := smtp.NewServer(smtp.BackendFunc(c.newSession))
	s.Domain = "catcher.localhost"
	s.MaxMessageBytes = c.cfg.MaxMessageBytes
	s.MaxRecipients = c.cfg.MaxRecipients
	s.AllowInsecureAuth = c.cfg.InsecureAuth
	s.EnableSMTPUTF8 = !slices.Contains(c.cfg.Without, "SMTPUTF8")
	s.ReadTimeout = 5 * time.Minute
	s.WriteTimeout = time.Minute
	s.ErrorLog = errorLog{c.cfg.Logger}
	if c.cfg.TLS || c.cfg.ImplicitTLS {
		material, err := makeTLS()
		if err != nil {
			return fmt.Errorf("mail catcher: make a certificate: %w", err)
		}
		c.tls = material
		s.TLSConfig = &tls.Config{Certificates: []tls.Certificate{material.certificate}, MinVersion: tls.VersionTLS12}
	}
	l, err := net.Listen("tcp", c.cfg.Addr)
	if err != nil {
		return fmt.Errorf("mail catcher: listen: %w", err)
	}
	c.server, c.listener = s, l
	return nil
}

// Addr returns the address that it listens on, "host:port".
func (c *Catcher) Addr() string { return c.listener.Addr().String() }

// ClientTLS returns a configuration that trusts the catcher's certificate, or nil without
// [Config.TLS].
func (c *Catcher) ClientTLS() *tls.Config {
	if c.tls == nil {
		return nil
	}
	return &tls.Config{RootCAs: c.tls.roots, MinVersion: tls.VersionTLS12}
}

// Close stops the server, closes all connections and releases clients that a fault left
// hanging. Kept mails stay readable. It may be called again.
func (c *Catcher) Close() error {
	c.stopOnce.Do(func() {
		close(c.stop)
		// Both errors only say that the server was already closed. The server does not know
		// the listener yet if Serve has not started.
		_ = c.server.Close()
		_ = c.listener.Close()
	})
	<-c.stopped
	return nil
}

// Mails returns the kept mails, oldest first. Do not change their contents, which are shared.
func (c *Catcher) Mails() []Mail {
	mails, _ := c.kept()
	list := make([]Mail, len(mails))
	for i, m := range mails {
		list[i] = *m
	}
	return list
}

// kept returns the kept mails, oldest first, and a channel that is closed when they change.
func (c *Catcher) kept() ([]*Mail, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.mails), c.changed
}

// Mail returns one kept mail.
func (c *Catcher) Mail(id string) (Mail, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.mails, func(m *Mail) bool { return m.ID == id })
	if i < 0 {
		return Mail{}, false
	}
	return *c.mails[i], true
}

// Delete deletes kept mails by id, or all of them. An unknown id is not an error.
func (c *Catcher) Delete(ids ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := make([]*Mail, 0, len(c.mails))
	for _, m := range c.mails {
		if len(ids) > 0 && !slices.Contains(ids, m.ID) {
			kept = append(kept, m)
			continue
		}
		c.remove(m.ID)
		c.bytes -= int64(len(m.Raw))
	}
	c.mails = kept
	close(c.changed)
	c.changed = make(chan struct{})
}

// Stats returns the counts so far.
func (c *Catcher) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// Cut closes all open connections without an answer.
func (c *Catcher) Cut() {
	c.mu.Lock()
	conns := slices.Collect(maps.Keys(c.conns))
	c.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close()
	}
}

// Wait returns nil as soon as met returns true for the kept mails (oldest first). It checks
// immediately and after every change. If ctx ends before, the error contains the number of
// mails.
func (c *Catcher) Wait(ctx context.Context, met func([]Mail) bool) error {
	for {
		_, changed := c.kept()
		mails := c.Mails()
		if met(mails) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for mail, %d caught: %w", len(mails), context.Cause(ctx))
		}
	}
}

// keep stores a mail and drops the oldest ones beyond the limits.
func (c *Catcher) keep(m Mail) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastID++
	m.ID = strconv.FormatInt(c.lastID, 10)
	if err := c.save(m); err != nil {
		return err
	}
	c.add(m)
	return nil
}

// add appends a mail that has an id. The caller holds mu.
func (c *Catcher) add(m Mail) {
	c.mails = append(c.mails, &m)
	c.bytes += int64(len(m.Raw))
	for len(c.mails) > 1 && (len(c.mails) > c.cfg.MaxMails || c.bytes > c.cfg.MaxBytes) {
		c.remove(c.mails[0].ID)
		c.bytes -= int64(len(c.mails[0].Raw))
		c.mails[0] = nil // releases the memory before the slice moves
		c.mails = c.mails[1:]
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *Catcher) count(do func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do(&c.stats)
}
