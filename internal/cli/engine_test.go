//go:build unix

package cli

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/memory"
)

// failing is a store whose CreateQueue returns the errors in codes, in order.
type failing struct {
	posthaste.Store
	codes []posthaste.Code
}

func (f *failing) CreateQueue(context.Context, string, posthaste.QueueOptions) error {
	if len(f.codes) == 0 {
		return nil
	}
	code := f.codes[0]
	f.codes = f.codes[1:]
	return &posthaste.Error{Code: code}
}

// Creating the queue of mails retries while Redis is unavailable. Other errors are returned
// at once.
func TestPrepareWaits(t *testing.T) {
	t.Parallel()
	for want, codes := range map[posthaste.Code][]posthaste.Code{
		"":                   {posthaste.CodeOutcomeUnknown, posthaste.CodeUnavailable, posthaste.CodeConflict},
		posthaste.CodeDenied: {posthaste.CodeDenied, posthaste.CodeConflict},
	} {
		db := databaseAt(onRedis, "redis://127.0.0.1:1")
		if err := db.prepare(t.Context(), &failing{memory.Open(), codes}); posthaste.CodeOf(err) != want {
			t.Errorf("after %v: %v", codes, err)
		}
	}
}

// A server does not count as started if another server has its port.
func TestRedisOnATakenPort(t *testing.T) {
	t.Parallel()
	other, home := anyRedis(t, t.TempDir()), anyHome(t)
	log, err := home.create(redisLogFile)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if err := os.Mkdir(home.path(redisDir), 0o700); err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(other.Address(), ":")
	n, _ := strconv.Atoi(port)
	r := newLocalRedis(home, "redis-server", log)
	r.port = n
	if err := r.Restart(t.Context()); posthaste.CodeOf(err) != posthaste.CodeUnavailable || !strings.Contains(err.Error(), "did not start") {
		t.Errorf("on the port of another: %v", err)
	}
}

// stopLeftRedis stops the server of its directory, also through a symbolic link, and no
// other server.
func TestStopLeftRedis(t *testing.T) {
	t.Parallel()
	elsewhere := t.TempDir()
	for what, c := range map[string]struct {
		link, args []string
		stopped    bool
	}{
		"its own, by a link": {link: []string{elsewhere}, stopped: true},
		"another server":     {},
		"with a password":    {args: []string{"--requirepass", "secret"}},
	} {
		home, dir := anyHome(t), t.TempDir()
		for _, dir = range c.link {
			if err := os.Symlink(dir, home.path(redisDir)); err != nil {
				t.Fatal(err)
			}
		}
		r := anyRedis(t, dir, c.args...)
		_, port, _ := strings.Cut(r.Address(), ":")
		if err := os.WriteFile(home.path(redisPortFile), []byte(port), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := stopLeftRedis(t.Context(), home); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		client := goredis.NewClient(&goredis.Options{Addr: r.Address(), Password: strings.Join(c.args[min(len(c.args), 1):], "")})
		if err := client.Ping(t.Context()).Err(); (err != nil) != c.stopped {
			t.Errorf("%s: stopped should be %t: %v", what, c.stopped, err)
		}
		client.Close()
		if err := stopLeftRedis(t.Context(), home); err != nil {
			t.Errorf("%s, again: %v", what, err)
		}
	}
}

func anyHome(t *testing.T) *home {
	t.Helper()
	h, err := openHome(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.close)
	return h
}

func anyRedis(t *testing.T, dir string, further ...string) *devbroker.Redis {
	t.Helper()
	r, err := devbroker.StartRedis(t.Context(), dir, further...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	return r
}
