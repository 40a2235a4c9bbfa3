package redis

import (
	"slices"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste/internal/devbroker"
)

func TestServers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"redis://h":                       {"redis://h", "h:6379"},
		"redis://h:1/3":                   {"redis://h:1/3", "h:1"},
		"rediss://u:p%40@h:1/3":           {"rediss://u:p%40@h:1/3", "h:1"},
		"redis://u:p@h:1,[::1],k:2/":      {"redis://u:p@h:1/", "h:1", "[::1]:6379", "k:2"},
		"redis://:a@b@h,k?x=1":            {"redis://:a@b@h?x=1", "h:6379", "k:6379"},
		"http://secret":                   nil,
		"redis:secret":                    nil,
		"redis://":                        nil,
		"redis://secret@":                 nil,
		"redis://u:secret@h,,k":           nil,
		"redis://u:secret@h:port,k":       nil,
		"redis://u:secret@h,k:secret/":    nil,
		"redis://u:secret@[::1":           nil,
		"redis://u:1/secret@h":            nil,
		"redis://u:1?secret@h":            nil,
		"redis://u:1#secret@h":            nil,
		"redis://u:secret@h, secret word": nil,
	} {
		first, addresses, err := Servers(text)
		switch got := append([]string{first}, addresses...); {
		case want == nil && (err == nil || strings.Contains(err.Error(), "secret")):
			t.Errorf("%s: %v", text, err)
		case want != nil && (err != nil || !slices.Equal(got, want)):
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
}

// As a server of a cluster says it.
func TestSlot(t *testing.T) {
	t.Parallel()
	r, err := devbroker.StartRedisNode(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	client := goredis.NewClient(&goredis.Options{Addr: r.Address()})
	defer client.Close()
	for _, key := range []string{"a", "orders", "{a}b", "x{}y", "x{y", "a{b}{c}", "}{", "{{a}}", "ü", "", strings.Repeat("z", 1000)} {
		if want, err := client.ClusterKeySlot(t.Context(), key).Result(); err != nil || Slot(key) != int(want) {
			t.Errorf("%q is in slot %d, want %d, %v", key, Slot(key), want, err)
		}
	}
}

func TestAbsolute(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]string{
		{"h:1", "[::1]:9", "h:1"}, {":1", "[::1]:9", "[::1]:1"}, {"?:1", "[::1]:9", "[::1]:1"}, {"nonsense", "[::1]:9", "nonsense"},
		{"h:0", "g:9", "h:9"}, {"127.0.0.1:1", "g:9", "g:1"}, {"localhost:1", "127.0.0.1:9", "localhost:1"},
	} {
		if got := Absolute(c[0], c[1]); got != c[2] {
			t.Errorf("%q as %s says it is %q, want %q", c[0], c[1], got, c[2])
		}
	}
}
