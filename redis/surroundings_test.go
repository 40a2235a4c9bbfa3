package redis

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
)

// wantRefused checks that an engine was refused with a code and what to do.
func wantRefused(t *testing.T, what string, e *Engine, err error, code posthaste.Code) *posthaste.Error {
	t.Helper()
	if e != nil {
		t.Errorf("%s: opened", what)
		e.Close()
	}
	var said *posthaste.Error
	if !errors.As(err, &said) || said.Code != code || said.Hint == "" {
		t.Errorf("%s: %v (%q), want %s with what to do", what, err, posthaste.CodeOf(err), code)
		return &posthaste.Error{}
	}
	return said
}

// wantEmpty checks that nothing was written to a server.
func wantEmpty(t *testing.T, address string) {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: address})
	defer c.Close()
	if n, err := c.DBSize(t.Context()).Result(); err != nil || n != 0 {
		t.Errorf("%d keys were written: %v", n, err)
	}
}

// A user who lacks one command, the keys or the channels is refused before anything is
// written, and the error names the missing right. A script that was denied a command in its
// middle would have done half of its work.
func TestOpenRefusesUsers(t *testing.T) {
	t.Parallel()
	r := start(t)
	admin := goredis.NewClient(&goredis.Options{Addr: r.Address()})
	defer admin.Close()
	const keys, channels, commands = "~{posthaste*", "&{posthaste*", "+@read +@write +@scripting +@connection +publish +subscribe +info +time"
	for name, c := range map[string]struct{ rules, names string }{
		"no channels":       {keys + " " + commands, "PUBLISH"},
		"other channels":    {keys + " &{other* " + commands, "PUBLISH"},
		"no keys":           {channels + " " + commands, "DEL"},
		"keys of one queue": {keys[:len(keys)-1] + ":jobs}* " + channels + " " + commands, "DEL"},
		"reads only":        {"%R" + keys + " " + channels + " " + commands, "DEL"},
		"without hset":      {keys + " " + channels + " " + commands + " -hset", "HSET"},
		"without zadd":      {keys + " " + channels + " " + commands + " -zadd", "ZADD"},
		"without publish":   {keys + " " + channels + " " + commands + " -publish", "PUBLISH"},
		"without time":      {keys + " " + channels + " " + commands + " -time", "TIME"},
		"without info":      {keys + " " + channels + " " + commands + " -info", "info"},
		"without scripts":   {keys + " " + channels + " " + commands + " -@scripting", "eval"},
	} {
		rules := []any{"acl", "setuser", "app", "reset", "on", ">pw"}
		for rule := range strings.FieldsSeq(c.rules) {
			rules = append(rules, rule)
		}
		if err := admin.Do(t.Context(), rules...).Err(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		e, err := Open(t.Context(), "redis://app:pw@"+r.Address())
		said := wantRefused(t, name, e, err, posthaste.CodeDenied)
		if !strings.Contains(said.Message, c.names) || strings.Contains(said.Error(), "pw") {
			t.Errorf("%s: %v does not name %s", name, said, c.names)
		}
		lazy, err := Open(t.Context(), "redis://app:pw@"+r.Address(), WithLazyConnect())
		if err != nil {
			t.Fatal(err)
		}
		if err := lazy.CreateQueue(t.Context(), jobs, posthaste.QueueOptions{}); posthaste.CodeOf(err) != posthaste.CodeDenied {
			t.Errorf("%s, opened lazily: %v", name, err)
		}
		lazy.Close()
	}
	wantEmpty(t, r.Address())
}

// A user who has lost the right to ring still sends, and only once: the message is stored, and
// a repeated request gets the answer of the first.
func TestDeniedRingFailsNothing(t *testing.T) {
	rule(t, func(t *testing.T, e *Engine) string {
		create(t, e, posthaste.QueueOptions{})
		user := e.keys.prefix
		if err := e.client.Do(t.Context(), "acl", "setuser", user, "on", ">pw", "~*", "&*", "+@all").Err(); err != nil {
			t.Fatal(err)
		}
		defer e.client.Do(t.Context(), "acl", "deluser", user)
		o, err := Open(t.Context(), "redis://"+user+":pw@"+server.Address(), WithPrefix(e.keys.prefix))
		if err != nil {
			t.Fatal(err)
		}
		defer o.Close()
		if err := e.client.Do(t.Context(), "acl", "setuser", user, "resetchannels").Err(); err != nil {
			t.Fatal(err)
		}
		var ids []posthaste.MessageID
		for n := range 2 {
			if err := e.client.Set(t.Context(), e.keys.of(jobs, "asleep"), 1, time.Minute).Err(); err != nil {
				t.Fatal(err)
			}
			request := posthaste.Idempotency{Scope: "s", Key: "k", Digest: []byte("a"), Window: time.Hour}
			sent, _, err := o.SendOnce(t.Context(), request, posthaste.Message{Queue: jobs})
			now, err := posthaste.IDs(sent, err)
			if err != nil {
				return fmt.Sprintf("request %d: %v", n, err)
			}
			if ids = append(ids, now...); ids[n] != ids[0] {
				return fmt.Sprintf("it was sent as %v", ids)
			}
		}
		return ""
	}, patch{&sendScript, "redis.pcall('PUBLISH'", "call('PUBLISH'"})
}

// A script that Redis stops in its middle may have written: it is not told as refused.
func TestStoppedInAScript(t *testing.T) {
	t.Parallel()
	for text, code := range map[string]posthaste.Code{
		"ERR The user executing the script can't run this command or subcommand script: 12ab, on @user_script:3.": posthaste.CodeOutcomeUnknown,
		"ERR ACL failure in script: User app has no permissions to run the 'publish' command":                     posthaste.CodeOutcomeUnknown,
		"WRONGTYPE Operation against a key holding the wrong kind of value script: 12ab, on @user_script:3.":      posthaste.CodeOutcomeUnknown,
		"NOPERM User app has no permissions to run the 'eval' command":                                            posthaste.CodeDenied,
		"NOPERM this user may not call 'hset', so nothing was done script: 12ab, on @user_script:3.":              posthaste.CodeDenied,
	} {
		err := writeError(proto(text))
		var said *posthaste.Error
		if !errors.As(err, &said) || said.Code != code || said.Hint == "" {
			t.Errorf("%q is told as %v", text, err)
		}
	}
}

// proto is an error as Redis answers it.
type proto string

func (p proto) Error() string { return string(p) }
func (proto) RedisError()     {}

// stub is a server that answers INFO with a version, and keeps the commands that it gets.
type stub struct {
	address string
	mu      sync.Mutex
	asked   []string
}

func startStub(t *testing.T, version string) *stub {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	s := &stub{address: l.Addr().String()}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go s.serve(c, version)
		}
	}()
	return s
}

func (s *stub) serve(c net.Conn, version string) {
	defer c.Close()
	in := bufio.NewReader(c)
	number := func() int {
		line, err := in.ReadString('\n')
		if err != nil || len(line) < 2 {
			return 0
		}
		n, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
		return n
	}
	for {
		words := make([]string, number())
		for i := range words {
			word := make([]byte, number()+2)
			if _, err := io.ReadFull(in, word); err != nil {
				return
			}
			words[i] = strings.ToLower(strings.TrimSpace(string(word)))
		}
		if len(words) == 0 {
			return
		}
		s.mu.Lock()
		s.asked = append(s.asked, words[0])
		s.mu.Unlock()
		answer := "-ERR unknown command '" + words[0] + "'\r\n"
		switch words[0] {
		case "client":
			answer = "+OK\r\n"
		case "info":
			about := "redis_version:" + version + "\r\nrole:master\r\nmaxmemory:0\r\n"
			answer = fmt.Sprintf("$%d\r\n%s\r\n", len(about), about)
		}
		if _, err := io.WriteString(c, answer); err != nil {
			return
		}
	}
}

// Open rejects a Redis that is too old by its version, and sends no further commands to it.
func TestOpenRefusesOldRedis(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"6.2.14", "5.0.7", "what"} {
		s := startStub(t, version)
		e, err := Open(t.Context(), "redis://"+s.address)
		if said := wantRefused(t, version, e, err, posthaste.CodeUnsupported); !strings.Contains(said.Message, version) {
			t.Errorf("%v does not tell the version %s", said, version)
		}
		s.mu.Lock()
		for _, name := range s.asked {
			if !slices.Contains([]string{"hello", "client", "info"}, name) {
				t.Errorf("Redis %s was asked to %s", version, name)
			}
		}
		s.mu.Unlock()
	}
}

// Keys of another layout are left as they are by who refuses them.
func TestOtherLayoutIsLeftAlone(t *testing.T) {
	t.Parallel()
	r := start(t)
	c := goredis.NewClient(&goredis.Options{Addr: r.Address()})
	defer c.Close()
	if err := c.Set(t.Context(), "{posthaste}:layout", "99", 0).Err(); err != nil {
		t.Fatal(err)
	}
	e, err := Open(t.Context(), r.URL())
	wantRefused(t, "another layout", e, err, posthaste.CodeSchemaNew)
	if n, err := c.DBSize(t.Context()).Result(); err != nil || n != 1 {
		t.Errorf("there are %d keys: %v", n, err)
	}
	if is, err := c.Get(t.Context(), "{posthaste}:layout").Result(); err != nil || is != "99" {
		t.Errorf("the layout is %q: %v", is, err)
	}
}

// Keys of the layout before are taken over, with what waits and is due in them.
func TestLayoutBeforeIsTakenOver(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	create(t, e, posthaste.QueueOptions{})
	later := []posthaste.Message{{Queue: jobs, Payload: 0, Delay: time.Hour}, {Queue: jobs, Payload: 1, Priority: 1, Delay: time.Hour}, {Queue: jobs, Payload: 3, Priority: 3, Delay: time.Hour}}
	ids, err := posthaste.IDs(e.Send(t.Context(), later...))
	if err != nil {
		t.Fatal(err)
	}
	due := e.keys.of(jobs, "due")
	for i, id := range ids { // as programs of before stored it
		member := fmt.Sprintf("%d:%s", later[i].Priority, place(int64(id)))
		if n, err := e.client.ZAddXX(t.Context(), due, goredis.Z{Score: 1, Member: member}).Result(); err != nil || n != 0 {
			t.Fatalf("%s: %d, %v", member, n, err)
		}
	}
	if err := e.client.Set(t.Context(), e.keys.layout(), layoutBefore, 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := e.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	now, err := New(t.Context(), e.client, WithPrefix(e.keys.prefix))
	if err != nil {
		t.Fatal(err)
	}
	if is, err := e.client.Get(t.Context(), e.keys.layout()).Result(); err != nil || is != layoutVersion {
		t.Errorf("the layout is %q: %v", is, err)
	}
	if got := claim(t, now, register(t, now), 1, 10); len(got) != 3 || done(t, now, got...) != 3 {
		t.Errorf("%d were handed out, want 3", len(got))
	}
}

// Clients that would be answered by replicas, or by another server where one is away, are
// refused.
func TestNewRefusesClients(t *testing.T) {
	t.Parallel()
	nobody := []string{"127.0.0.1:1"}
	ring := goredis.NewRing(&goredis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	for what, client := range map[string]goredis.UniversalClient{
		"ReadOnly":       goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: nobody, ReadOnly: true}),
		"RouteByLatency": goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: nobody, RouteByLatency: true}),
		"RouteRandomly":  goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: nobody, RouteRandomly: true}),
		"a Ring":         ring,
	} {
		e, err := New(t.Context(), client)
		wantRefused(t, what, e, err, posthaste.CodeUnsupported)
		client.Close()
	}
}

// Doctor finds what Redis may lose messages by.
func TestDoctorFinds(t *testing.T) {
	t.Parallel()
	r := start(t)
	e := open(t, r.URL())
	for _, c := range []struct {
		what, check, says string
		causes            map[string]string
	}{
		{"no append-only file", "persistence", "append-only", map[string]string{"appendonly": "no"}},
		{"keys with a time may be evicted", "memory", "volatile-lru", map[string]string{"maxmemory-policy": "volatile-lru", "maxmemory": "1gb"}},
		{"any key may be evicted", "memory", "allkeys-random", map[string]string{"maxmemory-policy": "allkeys-random", "maxmemory": "1gb"}},
		{"memory is nearly full", "memory", "% of its maxmemory", map[string]string{"maxmemory": "1mb"}},
	} {
		found := func() string {
			all, err := e.Doctor(t.Context())
			if err != nil {
				t.Fatalf("%s: %v", c.what, err)
			}
			for _, f := range all {
				if f.Check == c.check && strings.Contains(f.Message, c.says) && f.Hint != "" {
					return f.Message
				}
			}
			return ""
		}
		if said := found(); said != "" {
			t.Errorf("before %s: %s", c.what, said)
		}
		set := func(values map[string]string) {
			for name, value := range values {
				if err := e.client.ConfigSet(t.Context(), name, value).Err(); err != nil {
					t.Fatal(err)
				}
			}
		}
		set(c.causes)
		if found() == "" {
			t.Errorf("%s was not found", c.what)
		}
		set(map[string]string{"appendonly": "yes", "maxmemory-policy": "noeviction", "maxmemory": "0"})
	}
}

func nothingFound(context.Context) (posthaste.LookReply, error) {
	return posthaste.LookReply{NextDue: -1}, nil
}

// Where memory is full one can still fall asleep, and is woken.
func TestSleepOutOfMemory(t *testing.T) {
	t.Parallel()
	r := start(t)
	e := open(t, r.URL())
	create(t, e, posthaste.QueueOptions{})
	if err := e.client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Send(t.Context(), posthaste.Message{Queue: jobs}); posthaste.CodeOf(err) != posthaste.CodeUnavailable {
		t.Fatalf("memory is not full: %v", err)
	}
	bell, err := e.Doorbell(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer bell.Close()
	woken := make(chan error, 1)
	go func() { woken <- bell.Sleep(t.Context(), jobs, nothingFound) }()
	until(t, "he sleeps", func() bool {
		select {
		case err := <-woken:
			t.Fatalf("he did not fall asleep: %v", err)
		default:
		}
		n, err := e.client.Exists(t.Context(), e.keys.of(jobs, "asleep")).Result()
		return err == nil && n == 1
	})
	if err := e.Resume(posthaste.WithActor(t.Context(), "ada"), posthaste.OfQueue(jobs)); err != nil {
		t.Fatal(err)
	}
	if err := <-woken; err != nil {
		t.Error(err)
	}
}
