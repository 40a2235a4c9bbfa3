package bench

import (
	"context"
	"log/slog"
	"net/url"
	"strings"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/redis"
)

// home is where messages of a run are stored: a database, or keys of a Redis.
type home struct {
	URL    string `json:"url,omitempty"`
	Prefix string `json:"prefix,omitempty"` // of the keys; empty for a database
}

func (h home) open(ctx context.Context, log *slog.Logger) (posthaste.Store, error) {
	if h.Prefix != "" {
		return redis.Open(ctx, h.URL, redis.WithPrefix(h.Prefix))
	}
	return postgres.Open(ctx, h.URL, postgres.WithLogger(log))
}

// withApplicationName returns the URL of the same database with an application name.
func withApplicationName(at, name string) (string, error) {
	if !strings.HasPrefix(at, "postgres://") && !strings.HasPrefix(at, "postgresql://") {
		return at + " application_name='" + name + "'", nil
	}
	u, err := url.Parse(at)
	if err != nil {
		return "", posthaste.Invalidf("database_url", "the database URL cannot be read")
	}
	q := u.Query()
	q.Set("application_name", name)
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// openWire opens a proxy before the store.
func (h home) openWire() (*wire, error) {
	if h.Prefix != "" {
		return openRedisWire(h.URL)
	}
	return openWire(h.URL)
}
