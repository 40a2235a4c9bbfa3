package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
)

// newHealthcheck returns the command that container images run, which contain no other program
// that could fetch a URL.
func newHealthcheck(a *app) *cobra.Command {
	var listen string
	var live bool
	timeout := 4 * time.Second
	cmd := &cobra.Command{
		Use: "healthcheck", Short: "Check that a server of the HTTP API is ready",
		Long: `Check that "posthaste serve" on this machine is ready to send and deliver messages: fetch its
/readyz. With --live fetch /healthz instead, which does not depend on the database. It needs no
token. The exit code is 0 if the server is ready, and 3 if it is not or cannot be reached.

A worker or a relay answers --live at the address of its --metrics-listen.

It is the health check of the container image, and reads the address from POSTHASTE_LISTEN, as
the server does.`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			path := "/readyz"
			if live {
				path = "/healthz"
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			status, err := checkHealth(ctx, listen, path)
			if err != nil {
				return err
			}
			return a.print(struct {
				Status string `json:"status"`
			}{status}, func(w *screen) { fmt.Fprintln(w, status) })
		},
	}
	cmd.Flags().StringVar(&listen, "listen", defaultListen, "address that the server listens on, host:port")
	cmd.Flags().BoolVar(&live, "live", false, "check only that the process answers")
	cmd.Flags().Var(duration{&timeout}, "timeout", "time to wait for the answer")
	return cmd
}

// checkHealth returns the status that the server reports, or why it is not ready.
func checkHealth(ctx context.Context, listen, path string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", posthaste.Invalidf("listen", "--listen %q is not an address; expected host:port, such as %s", listen, defaultListen)
	}
	// A server that listens on all addresses answers on loopback as well. In an image without
	// /etc/hosts the name localhost is unknown.
	switch host {
	case "", "0.0.0.0", "localhost":
		host = "127.0.0.1"
	case "::":
		host = "::1"
	}
	address := net.JoinHostPort(host, port)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", &posthaste.Error{Code: posthaste.CodeUnavailable, Field: "listen", Cause: err,
			Message: fmt.Sprintf("the server at %s cannot be reached: %v", address, err), Hint: "check that posthaste serve runs, and that --listen or POSTHASTE_LISTEN is its address"}
	}
	defer response.Body.Close()
	var answer struct{ Status string }
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return "", err
	}
	healthy := map[string]string{"/readyz": "ready", "/healthz": "ok"}[path]
	if response.StatusCode == http.StatusOK && json.Unmarshal(body, &answer) == nil && answer.Status == healthy {
		return answer.Status, nil
	}
	return "", &posthaste.Error{Code: posthaste.CodeUnavailable, Field: "listen",
		Message: fmt.Sprintf("the server at %s is not ready: %s answered %s: %s", address, path, response.Status, strings.TrimSpace(string(body)))}
}
