package cli

import (
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// lines is a writer that sends each line of a log to a channel.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// The log reports that serving the metrics of a worker failed.
func TestMetricsThatAreNoLongerServed(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := make(lines, 10)
	a := &app{log: slog.New(slog.NewTextHandler(log, nil))}
	t.Cleanup(serveMetrics(a, listener, http.NotFoundHandler()))
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	testrun.Until(t, 10*time.Second, "an error about the metrics in the log", func() bool {
		select {
		case line := <-log:
			return strings.Contains(line, "level=ERROR") && strings.Contains(line, listener.Addr().String())
		default:
			return false
		}
	})
}
