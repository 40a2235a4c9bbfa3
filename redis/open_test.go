package redis

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
)

// start starts a server of the test's own.
func start(t *testing.T, args ...string) *devbroker.Redis {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := devbroker.StartRedis(ctx, t.TempDir(), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	return r
}

// What messages cannot be trusted to is refused at the start, with the remedy, and
// nothing is written.
func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	replica := start(t, "--replicaof", "127.0.0.1", "1")
	evicts := start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	locked := start(t, "--requirepass", "secret")
	for name, c := range map[string]struct {
		url  string
		code posthaste.Code
	}{
		"no URL":           {"http://user:secret@localhost", posthaste.CodeInvalid},
		"no server there":  {"redis://127.0.0.1:1", posthaste.CodeUnavailable},
		"no such cluster":  {"redis://:secret@127.0.0.1:1?cluster=true", posthaste.CodeUnavailable},
		"no cluster":       {server.URL() + "?cluster=true", posthaste.CodeUnsupported},
		"half a cluster":   {server.URL() + "?cluster=perhaps&addr=secret", posthaste.CodeInvalid},
		"no address":       {"redis://:secret@127.0.0.1:1?addr=secret", posthaste.CodeInvalid},
		"by number":        {"redis://127.0.0.1:1/3?cluster=true", posthaste.CodeInvalid},
		"of replicas":      {"redis://127.0.0.1:1?cluster=true&read_only=true", posthaste.CodeUnsupported},
		"a replica":        {replica.URL(), posthaste.CodeReadOnly},
		"one that evicts":  {evicts.URL(), posthaste.CodeUnsupported},
		"no password":      {locked.URL(), posthaste.CodeDenied},
		"wrong password":   {"redis://:secret2@" + locked.Address(), posthaste.CodeDenied},
		"no such database": {server.URL() + "/99", posthaste.CodeInvalid},
	} {
		e, err := Open(t.Context(), c.url)
		var said *posthaste.Error
		if !errors.As(err, &said) || said.Code != c.code || said.Hint == "" {
			t.Errorf("%s: %v (%q), want %s with what to do", name, err, posthaste.CodeOf(err), c.code)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error tells the password: %v", name, err)
		}
		if e != nil {
			t.Errorf("%s: opened", name)
		}
	}
	wantEmpty(t, evicts.Address())
	wantEmpty(t, replica.Address())
	if _, err := Open(t.Context(), server.URL(), WithPrefix("{x}")); posthaste.CodeOf(err) != posthaste.CodeInvalid {
		t.Errorf("a prefix with braces: %v", err)
	}
}

// Keys of another layout are refused, and so is going on after they are gone.
func TestOtherLayout(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	if err := e.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	if err := e.client.Set(t.Context(), e.keys.layout(), "1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := New(t.Context(), e.client, WithPrefix(e.keys.prefix)); posthaste.CodeOf(err) != posthaste.CodeSchemaNew {
		t.Errorf("another layout: %v", err)
	}
	if err := e.Ready(t.Context()); posthaste.CodeOf(err) != posthaste.CodeSchemaNew {
		t.Errorf("ready with another layout: %v", err)
	}
	if err := e.client.Del(t.Context(), e.keys.layout()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := e.Ready(t.Context()); posthaste.CodeOf(err) != posthaste.CodeSchemaOld {
		t.Errorf("ready without keys: %v", err)
	}
}

// A user with the permissions of docs/production/redis-engine.md can do everything.
func TestPermissions(t *testing.T) {
	t.Parallel()
	r := start(t, "--user", "app", "on", ">pw", "~{posthaste*", "&{posthaste*", "+@read", "+@write", "+@scripting", "+@connection", "+publish", "+subscribe", "+info", "+time")
	e, err := Open(t.Context(), "redis://app:pw@"+r.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	create(t, e, posthaste.QueueOptions{})
	ids := send(t, e, 3)
	w := register(t, e)
	d := claim(t, e, w, 1, 2)
	if _, err := e.Heartbeat(t.Context(), posthaste.Heartbeat{Worker: w, Queues: []posthaste.QueueRef{{Queue: jobs}}}); err != nil {
		t.Error(err)
	}
	bell, err := e.Doorbell(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer bell.Close()
	if err := bell.Sleep(t.Context(), jobs, func(context.Context) (posthaste.LookReply, error) { return posthaste.LookReply{Found: true}, nil }); err != nil {
		t.Error(err)
	}
	if _, err := e.Settle(t.Context(), []posthaste.Settlement{{Delivery: d[0].ID, Outcome: posthaste.OutcomeDead, Error: "x"}}); err != nil {
		t.Error(err)
	}
	send(t, e, 1) // rings
	if were, err := e.Replay(posthaste.WithActor(t.Context(), "ada"), posthaste.DeadLetterFilter{IDs: ids}); err != nil || len(were.Items) != 1 {
		t.Errorf("replayed %v: %v", were.Items, err)
	}
	for what, f := range map[string]func() error{
		"doctor":     func() error { _, err := e.Doctor(t.Context()); return err },
		"vitals":     func() error { _, err := e.Vitals(t.Context()); return err },
		"actions":    func() error { _, err := e.Actions(t.Context(), posthaste.ActionFilter{}); return err },
		"queues":     func() error { _, err := e.Queues(t.Context()); return err },
		"unregister": func() error { return e.Unregister(t.Context(), w) },
		"rescue":     func() error { _, err := e.Maintain(t.Context(), posthaste.UpkeepRescue); return err },
		"drop":       func() error { return e.DropQueue(t.Context(), jobs, posthaste.DropOptions{}) },
	} {
		if err := f(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Out of memory, sending is refused as a whole; operators pause, limit and drop queues,
// what waits is handed out and settled, and then there is room again.
func TestOutOfMemory(t *testing.T) {
	t.Parallel()
	r := start(t, "--maxmemory", "8mb")
	e := open(t, r.URL())
	create(t, e, posthaste.QueueOptions{})
	if err := e.CreateQueue(t.Context(), "spare", posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	w := register(t, e)
	body := make([]byte, 10_000)
	batch := make([]posthaste.Message, 20)
	for i := range batch {
		batch[i] = posthaste.Message{Queue: jobs, Payload: body}
	}
	sent := 0
	for {
		ids, err := posthaste.IDs(e.Send(t.Context(), batch...))
		if posthaste.CodeOf(err) == posthaste.CodeUnavailable {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if sent += len(ids); sent > 10_000 {
			t.Fatal("it is never full")
		}
	}
	memory := func(most string) {
		if err := e.client.ConfigSet(t.Context(), "maxmemory", most).Err(); err != nil {
			t.Fatal(err)
		}
	}
	memory("1mb") // full beyond doubt, whatever was freed meanwhile
	for what, f := range map[string]func() error{
		"pause": func() error {
			return e.Pause(posthaste.WithActor(t.Context(), "ada"), posthaste.OfQueue(jobs), posthaste.PauseOptions{})
		},
		"resume": func() error { return e.Resume(posthaste.WithActor(t.Context(), "ada"), posthaste.OfQueue(jobs)) },
		"limit": func() error {
			return e.UpdateQueue(posthaste.WithActor(t.Context(), "ada"), jobs, posthaste.QueueUpdate{Options: posthaste.QueueOptions{Limits: posthaste.QueueLimits{Concurrency: 1000}}})
		},
		"drop": func() error { return e.DropQueue(t.Context(), "spare", posthaste.DropOptions{}) },
	} {
		if err := f(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := e.Resume(posthaste.WithActor(t.Context(), "ada"), posthaste.OfQueue(jobs)); err != nil { // maybe the pause came last
		t.Error(err)
	}
	// A program that starts now, to empty it, finds its queue.
	other, err := New(t.Context(), e.client, WithPrefix(e.keys.prefix))
	if err == nil {
		err = other.CreateQueue(t.Context(), jobs, posthaste.QueueOptions{})
	}
	if err == nil {
		_, err = other.Register(t.Context(), posthaste.WorkerInfo{Name: "helper", Lease: time.Minute})
	}
	if err != nil {
		t.Errorf("a program that starts: %v", err)
	}
	memory("8mb")
	infos, err := e.Queues(t.Context(), jobs)
	if err != nil || infos[0].Subscriptions[0].Depth != int64(sent) {
		t.Fatalf("%+v wait of %d: %v", infos, sent, err)
	}
	handled := 0
	for number := int64(1); ; number++ {
		d := claim(t, e, w, number, 50)
		if len(d) == 0 {
			break
		}
		handled += done(t, e, d...)
	}
	if handled != sent {
		t.Errorf("%d of %d were handled", handled, sent)
	}
	if _, err := e.Send(t.Context(), batch...); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

// A message that waits costs no more than docs/production/redis-engine.md says, and of those
// that are settled only so many are kept as was said.
func TestMemory(t *testing.T) {
	t.Parallel()
	r := start(t)
	e := open(t, r.URL(), WithKept(100))
	create(t, e, posthaste.QueueOptions{})
	used := func() int64 {
		about, err := about(t.Context(), e.client)
		if err != nil {
			t.Fatal(err)
		}
		n, _ := parseMicros(about["used_memory_dataset"])
		return n
	}
	const n = 20_000 // with fewer, what the engine keeps once would count
	batch := make([]posthaste.Message, 1000)
	for i := range batch {
		batch[i] = posthaste.Message{Queue: jobs, Payload: make([]byte, 200)}
	}
	before := used()
	for range n / len(batch) {
		if _, err := e.Send(t.Context(), batch...); err != nil {
			t.Fatal(err)
		}
	}
	if per := (used() - before) / int64(n); per > 360 {
		t.Errorf("a message of 200 bytes takes %d bytes", per)
	} else {
		t.Logf("a message of 200 bytes takes %d bytes", per)
	}
	w := register(t, e)
	for number := int64(1); ; number++ {
		d := claim(t, e, w, number, 1000)
		if len(d) == 0 {
			break
		}
		done(t, e, d...)
	}
	for _, key := range []string{"msg", "run", "claim", "open"} {
		if n, err := e.client.HLen(t.Context(), e.keys.of(jobs, key)).Result(); err != nil || n != 0 {
			t.Errorf("%s still has %d: %v", key, n, err)
		}
	}
	if n, err := e.client.HLen(t.Context(), e.keys.of(jobs, "st")).Result(); err != nil || n != 0 {
		t.Errorf("%d states are kept: %v", n, err)
	}
	last := known(t, e, w, 1000)
	if n, err := e.client.LLen(t.Context(), e.keys.of(jobs, "past")).Result(); err != nil || n > 101 || last < 100 || last > 1100 {
		t.Errorf("of the last 1,000 settled one by one %d are kept, want 100: %d entries, %v", last, n, err)
	}
}

// known sends and settles n messages one by one, and counts those that are still known.
func known(t *testing.T, e *Engine, w posthaste.WorkerID, n int) (known int) {
	t.Helper()
	ids := send(t, e, n)
	for i := range ids {
		done(t, e, claim(t, e, w, int64(1000+i), 1)...)
	}
	for _, id := range ids {
		m, err := e.Message(t.Context(), id)
		if posthaste.CodeOf(err) == posthaste.CodeNotFound {
			continue
		}
		if known++; err != nil || m.Subscriptions[0].State != posthaste.StateDone || len(m.Subscriptions[0].Attempts) != 1 {
			t.Fatalf("message %d is told as %+v: %v", id, m, err)
		}
	}
	return known
}
