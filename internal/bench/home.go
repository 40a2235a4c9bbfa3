package bench

import (
	"context"
	"log/slog"
	"net/url"
	"strings"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/cpumeter"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/redis"
)

// home is where messages of a run are: a database of its own, or keys of a Redis.
type home struct {
	URL    string `json:"url,omitempty"`
	Prefix string `json:"prefix,omitempty"` // of the keys; empty: it is a database
}

// home makes one, of that purpose.
func (r *run) home(ctx context.Context, purpose string) (at home, err error) {
	if r.redis != nil {
		return home{r.redis.url, r.redis.prefix}, nil
	}
	at.URL, err = r.server.database(ctx, purpose)
	return at, err
}

// meter is that of the run's server.
func (r *run) meter() cpumeter.Meter {
	if r.redis != nil {
		return r.redis.meter
	}
	return r.server.meter
}

func (h home) open(ctx context.Context, log *slog.Logger) (posthaste.Store, error) {
	if h.Prefix != "" {
		return redis.Open(ctx, h.URL, redis.WithPrefix(h.Prefix))
	}
	return postgres.Open(ctx, h.URL, postgres.WithLogger(log))
}

// withApplicationName is the same database, whose sessions bear a name.
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
