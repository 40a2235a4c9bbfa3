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

// CheckListen refuses an address that others can reach while no token
// protects it. addr is host:port; a name counts by all it resolves to. The code
// is Refused for such an address, and Invalid for one that is none.
func CheckListen(addr string, hasToken bool) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return &posthaste.Error{Code: posthaste.Invalid, Field: "listen", Message: "the address to listen on must be host:port, and is \"" + addr + "\"", Hint: "for example --listen 127.0.0.1:8484", Cause: err}
	}
	if hasToken {
		return nil
	}
	local, err := isLoopback(host)
	if err != nil {
		return &posthaste.Error{Code: posthaste.Invalid, Field: "listen", Message: "the host to listen on, \"" + host + "\", is not known", Hint: "give an address with --listen", Cause: err}
	}
	if !local {
		return &posthaste.Error{
			Code: posthaste.Refused, Field: "listen",
			Message: "without a token the server only listens on this machine's loopback address, and \"" + addr + "\" can be reached from outside",
			Hint:    "make a token with `posthaste token add`, give one with --token (POSTHASTE_TOKEN), or listen on --listen 127.0.0.1:8484",
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

// Serve answers on the listener until ctx ends. Then it takes no new
// connections, ends all waiting for messages at once, and gives what runs
// grace to finish; what is left after that is cut off. It closes the listener
// and the server. Nil means that everything was answered.
func (s *Server) Serve(ctx context.Context, listener net.Listener, grace time.Duration) error {
	httpServer := &http.Server{
		Handler: s,
		// The times of body and answer are set per request: a long poll may
		// take longer than any of them.
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
	s.gatherer.drain()
	graceful, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err := httpServer.Shutdown(graceful)
	if errors.Is(err, context.DeadlineExceeded) {
		_ = httpServer.Close()
		err = &posthaste.Error{Code: posthaste.Refused, Message: "some requests were still running when the grace time of " + grace.String() + " was over, and were cut off"}
	}
	<-ended
	return err
}
