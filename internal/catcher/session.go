package catcher

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// session is a client's connection from EHLO until it ends.
type session struct {
	catcher *Catcher
	conn    *smtp.Conn
	user    string
	from    string
	to      []string
	utf8    bool
}

func (c *Catcher) newSession(conn *smtp.Conn) (smtp.Session, error) {
	s := &session{catcher: c, conn: conn}
	if err := s.strike(StageHello, ""); err != nil {
		return nil, err
	}
	return s, nil
}

// Reset implements [smtp.Session].
func (s *session) Reset() { s.from, s.to, s.utf8 = "", nil, false }

// Logout implements [smtp.Session].
func (s *session) Logout() error { return nil }

// Mail implements [smtp.Session].
func (s *session) Mail(from string, opts *smtp.MailOptions) error {
	s.catcher.count(func(n *Stats) { n.Transactions++ })
	if err := s.strike(StageMail, ""); err != nil {
		return err
	}
	if s.catcher.cfg.Username != "" && s.user == "" {
		return &smtp.SMTPError{Code: 530, EnhancedCode: smtp.EnhancedCode{5, 7, 0}, Message: "Authentication required"}
	}
	if err := s.needsUTF8(from, opts.UTF8); err != nil {
		return err
	}
	s.from, s.utf8 = from, opts.UTF8
	return nil
}

// Rcpt implements [smtp.Session].
func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	if err := s.strike(StageRcpt, to); err != nil {
		return err
	}
	if err := s.needsUTF8(to, s.utf8); err != nil {
		return err
	}
	s.to = append(s.to, to)
	return nil
}

// needsUTF8 rejects a non-ASCII address in a transaction without SMTPUTF8.
func (s *session) needsUTF8(address string, announced bool) error {
	beyond := strings.ContainsFunc(address, func(r rune) bool { return r > '~' })
	if beyond && !announced {
		return &smtp.SMTPError{Code: 553, EnhancedCode: smtp.EnhancedCode{5, 6, 7}, Message: "The address needs SMTPUTF8"}
	}
	return nil
}

// Data implements [smtp.Session].
func (s *session) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	f := s.catcher.faults.take(StageEnd, "")
	fails := f != nil && (f.Hang || f.Drop || f.Code != 0)
	if !fails || f.Kept {
		if err := s.keep(raw, !fails); err != nil {
			return err
		}
	}
	return s.apply(f)
}

func (s *session) keep(raw []byte, success bool) error {
	select {
	case <-s.catcher.stop:
		return &smtp.SMTPError{Code: 421, EnhancedCode: smtp.EnhancedCode{4, 3, 2}, Message: "Shutting down"}
	default:
	}
	m := decode(raw)
	m.ReceivedAt = time.Now().UTC()
	m.From, m.To, m.SMTPUTF8, m.User = s.from, slices.Clone(s.to), s.utf8, s.user
	_, m.TLS = s.conn.TLSConnectionState()
	if err := s.catcher.keep(m); err != nil {
		s.catcher.cfg.Logger.Error("mail was not caught", "error", err)
		return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 3, 0}, Message: "The mail cannot be kept"}
	}
	if kept := s.catcher.cfg.Kept; kept != nil {
		kept(m, success)
	}
	return nil
}

// AuthMechanisms implements [smtp.AuthSession].
func (s *session) AuthMechanisms() []string {
	if s.catcher.cfg.Username == "" {
		return nil
	}
	return s.catcher.cfg.AuthMechanisms
}

// Auth implements [smtp.AuthSession].
func (s *session) Auth(mechanism string) (sasl.Server, error) {
	check := func(user, password string) error {
		if err := s.strike(StageAuth, ""); err != nil {
			return err
		}
		if user != s.catcher.cfg.Username || password != s.catcher.cfg.Password {
			return smtp.ErrAuthFailed
		}
		s.user = user
		return nil
	}
	switch {
	case !slices.Contains(s.AuthMechanisms(), mechanism):
		return nil, smtp.ErrAuthUnknownMechanism
	case mechanism == sasl.Plain:
		return sasl.NewPlainServer(func(_, user, password string) error { return check(user, password) }), nil
	case mechanism == sasl.Login:
		return &loginServer{check: check}, nil
	}
	return nil, smtp.ErrAuthUnknownMechanism
}

// loginServer is the server side of AUTH LOGIN.
type loginServer struct {
	check func(user, password string) error
	step  int
	user  string
}

// Next implements [sasl.Server].
func (l *loginServer) Next(response []byte) (challenge []byte, done bool, err error) {
	l.step++
	switch {
	case l.step == 1 && response == nil:
		return []byte("Username:"), false, nil
	case l.step == 1: // sent with the command itself
		l.step++
		fallthrough
	case l.step == 2:
		l.user = string(response)
		return []byte("Password:"), false, nil
	case l.step == 3:
		return nil, true, l.check(l.user, string(response))
	}
	return nil, false, sasl.ErrUnexpectedClientResponse
}

// strike applies the next fault of a stage, if any.
func (s *session) strike(stage Stage, recipient string) error {
	return s.apply(s.catcher.faults.take(stage, recipient))
}

// errDropped is returned after the connection was closed; no client sees it.
var errDropped = errors.New("connection dropped")

func (s *session) apply(f *Fault) error {
	switch {
	case f == nil:
		return nil
	case f.Hang:
		select {
		case <-f.released:
		case <-s.catcher.stop:
		}
		s.hook().Close()
		return errDropped
	case f.Drop:
		s.hook().Close()
		return errDropped
	case f.DropAfter:
		s.hook().closeAfterWrite()
	}
	if f.Code == 0 {
		return nil
	}
	return &smtp.SMTPError{Code: f.Code, EnhancedCode: f.Enhanced, Message: f.Text}
}

// hook returns the connection below TLS.
func (s *session) hook() *hookConn {
	var nc net.Conn = s.conn.Conn()
	if t, ok := nc.(*tls.Conn); ok {
		nc = t.NetConn()
	}
	return nc.(*hookConn)
}

// errorLog forwards the server's errors to a logger.
type errorLog struct{ logger *slog.Logger }

// Printf implements [smtp.Logger].
func (l errorLog) Printf(format string, v ...any) {
	l.logger.Debug("mail catcher: " + fmt.Sprintf(format, v...))
}

// Println implements [smtp.Logger].
func (l errorLog) Println(v ...any) {
	l.logger.Debug("mail catcher: " + strings.TrimSpace(fmt.Sprintln(v...)))
}
