package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthaste-mq/posthaste"
)

// newHealthcheck returns the command that container images run, which contain no other program
// that could fetch a URL.
func newHealthcheck(a *app) *cobra.Command {
	var base string
	var live bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "healthcheck", Short: "Check that a server of the HTTP API is ready",
		Long: `Check that a running "posthaste serve" is ready to send and deliver messages: fetch its
/readyz. With --live fetch /healthz instead, which does not depend on the database. It needs no
token. The exit code is 0 if the server answers that it is, and 3 if it does not or cannot be
reached.

It is the health check of the container image.`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			path := "/readyz"
			if live {
				path = "/healthz"
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			status, err := checkHealth(ctx, base, path)
			if err != nil {
				return err
			}
			return a.print(struct {
				Status string `json:"status"`
			}{status}, func(w *screen) { fmt.Fprintln(w, status) })
		},
	}
	cmd.Flags().StringVar(&base, "url", "http://"+defaultListen, "URL of the server")
	cmd.Flags().BoolVar(&live, "live", false, "check only that the process answers")
	cmd.Flags().DurationVar(&timeout, "timeout", 4*time.Second, "time to wait for the answer")
	return cmd
}

// checkHealth returns the status that the server reports, or why it is not ready.
func checkHealth(ctx context.Context, base, path string) (string, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", posthaste.Invalidf("url", "--url %q is not the URL of a server; expected one such as http://%s", base, defaultListen)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base, "/")+path, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", &posthaste.Error{Code: posthaste.CodeUnavailable, Field: "url", Cause: err,
			Message: fmt.Sprintf("the server at %s cannot be reached: %v", base, err), Hint: "check that posthaste serve runs, and --listen"}
	}
	defer response.Body.Close()
	var answer struct{ Status string }
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return "", err
	}
	if response.StatusCode == http.StatusOK && json.Unmarshal(body, &answer) == nil && answer.Status != "" {
		return answer.Status, nil
	}
	return "", &posthaste.Error{Code: posthaste.CodeUnavailable, Field: "url",
		Message: fmt.Sprintf("the server at %s is not ready: %s answered %s: %s", base, path, response.Status, strings.TrimSpace(string(body)))}
}
