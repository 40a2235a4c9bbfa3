package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/posthaste-mq/posthaste"
)

// CheckListen returns an error if addr, as host:port, is not a loopback address and there is
// no token. A host name must resolve to loopback addresses only. The code is Refused for an
// address that needs a token, and Invalid for an address that is not valid.
func CheckListen(addr string, hasToken bool) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "listen", Message: "the listen address must be host:port, got \"" + addr + "\"", Hint: "for example --listen 127.0.0.1:8484", Cause: err}
	}
	if hasToken {
		return nil
	}
	local, err := isLoopback(host)
	if err != nil {
		return &posthaste.Error{Code: posthaste.CodeInvalid, Field: "listen", Message: "the host \"" + host + "\" of the listen address cannot be resolved", Hint: "use an IP address, for example --listen 127.0.0.1:8484", Cause: err}
	}
	if !local {
		return &posthaste.Error{
			Code: posthaste.CodeRefused, Field: "listen",
			Message: "without a token the server only listens on loopback addresses, and \"" + addr + "\" is reachable from other machines",
			Hint:    "create a token with `posthaste token add`, set one with --token (POSTHASTE_TOKEN), or use --listen 127.0.0.1:8484",
		}
	}
	return nil
}

func isLoopback(host string) (bool, error) {
	if host == "" {
		return false, nil // every address of the machine
	}
	if ip := net.ParseIP(host); ip != nil {
		return ip.IsLoopback(), nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil {
		return false, err
	}
	for _, addr := range addrs {
		if !addr.IP.IsLoopback() {
			return false, nil
		}
	}
	return len(addrs) > 0, nil
}

// Serve accepts connections on the listener until ctx ends. Then it accepts no new
// connections, ends all waiting for messages at once, and waits up to grace for running
// requests; after that it closes their connections. It closes the listener and the server.
// It returns nil if all requests were answered.
func (s *Server) Serve(ctx context.Context, listener net.Listener, grace time.Duration) error {
	httpServer := &http.Server{
		Handler: s,
		// The deadlines of body and response are set per request, because a receiver may wait
		// longer than any of them.
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
	}
	ended := make(chan error, 1)
	go func() { ended <- httpServer.Serve(listener) }()
	defer s.Close()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	s.stop()
	s.gatherer.drain()
	graceful, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err := httpServer.Shutdown(graceful)
	if errors.Is(err, context.DeadlineExceeded) {
		_ = httpServer.Close()
		err = &posthaste.Error{Code: posthaste.CodeRefused, Message: "some requests were still running after the grace period of " + grace.String() + ", and their connections were closed"}
	}
	<-ended
	return err
}
