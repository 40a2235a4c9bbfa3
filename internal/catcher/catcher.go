// Package catcher is an SMTP server that keeps the mails it receives and
// shows them, instead of passing them on: the one of `posthaste up`, and the
// one of tests, which can make it fail in every way a server can.
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

// Config says how to catch. The zero value catches in memory on a free port
// of 127.0.0.1.
type Config struct {
	// Addr is where to listen (default "127.0.0.1:0", any free port).
	Addr string
	// Dir keeps the mails as .eml files, so that they outlive the process. It
	// is made if missing. Empty keeps them in memory only.
	Dir string
	// MaxMails is how many mails are kept; the oldest go first (default 1,000).
	MaxMails int
	// MaxBytes is how many bytes they may have together, as received (default
	// 128 MiB). The newest mail is kept whatever its size.
	MaxBytes int64
	// MaxMessageBytes bounds one mail and is announced (default 32 MiB).
	MaxMessageBytes int64
	// MaxRecipients bounds the recipients of one transaction (default: no bound).
	MaxRecipients int
	// TLS offers STARTTLS, with a certificate made for this catcher.
	TLS bool
	// ImplicitTLS expects TLS from the first byte instead.
	ImplicitTLS bool
	// Username and Password, if set, are required from clients.
	Username, Password string
	// InsecureAuth offers authentication also without TLS.
	InsecureAuth bool
	// AuthMechanisms are offered where Username is set (default PLAIN and LOGIN).
	AuthMechanisms []string
	// Without are extensions left out of what is announced: SMTPUTF8, and on
	// connections without TLS 8BITMIME, PIPELINING, ENHANCEDSTATUSCODES and LIMITS.
	Without []string
	// Logger is told of what goes wrong (default: nobody is).
	Logger *slog.Logger
	// Kept, if set, is called with each mail once it is kept, and the client is
	// answered when it has returned: with success, or as a [Fault] wants. Several may
	// be under way at the same time.
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
	mails   []*Mail // none is changed
	bytes   int64
	lastID  int64
	changed chan struct{} // closed and made anew at every change
	stats   Stats
	conns   map[*hookConn]struct{}
}

// Stats counts what clients did.
type Stats struct {
	// Connections were accepted, Transactions begun by MAIL.
	Connections, Transactions int
	// Open is how many connections are open now.
	Open int
}

// Start listens, loads what Dir holds, and catches until [Catcher.Close].
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

// Addr returns the address it listens on, "host:port".
func (c *Catcher) Addr() string { return c.listener.Addr().String() }

// ClientTLS returns a configuration that trusts the catcher's certificate;
// nil without [Config.TLS].
func (c *Catcher) ClientTLS() *tls.Config {
	if c.tls == nil {
		return nil
	}
	return &tls.Config{RootCAs: c.tls.roots, MinVersion: tls.VersionTLS12}
}

// Close stops catching, cuts all connections and lets go of clients that a
// fault made hang. Kept mails stay readable. It may be called again.
func (c *Catcher) Close() error {
	c.stopOnce.Do(func() {
		close(c.stop)
		// Both only tell that something was closed before. The server does not
		// know the listener yet if it has not come to serve.
		_ = c.server.Close()
		_ = c.listener.Close()
	})
	<-c.stopped
	return nil
}

// Mails returns the kept mails, oldest first. Their contents are shared: do
// not change them.
func (c *Catcher) Mails() []Mail {
	mails, _ := c.kept()
	list := make([]Mail, len(mails))
	for i, m := range mails {
		list[i] = *m
	}
	return list
}

// kept returns the kept mails, oldest first, and what is closed when they change.
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

// Delete deletes kept mails by their ids, or all of them. An unknown id is no error.
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

// Stats returns what was counted so far.
func (c *Catcher) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// Cut closes all connections that are open, without a word.
func (c *Catcher) Cut() {
	c.mu.Lock()
	conns := slices.Collect(maps.Keys(c.conns))
	c.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close()
	}
}

// Wait returns nil as soon as met is true of the kept mails (oldest first). It
// looks at once and after every change. If ctx ends before, the error says how
// many mails there are.
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

// keep stores a mail and drops the oldest beyond the limits.
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

// add appends a mail that has its id. The caller holds mu.
func (c *Catcher) add(m Mail) {
	c.mails = append(c.mails, &m)
	c.bytes += int64(len(m.Raw))
	for len(c.mails) > 1 && (len(c.mails) > c.cfg.MaxMails || c.bytes > c.cfg.MaxBytes) {
		c.remove(c.mails[0].ID)
		c.bytes -= int64(len(c.mails[0].Raw))
		c.mails[0] = nil // lets go of its memory before the slice moves
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
