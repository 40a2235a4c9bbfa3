package redis

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
)

// deprived tries each call of a script once for each command that the script has, as a user
// who may not give that command, before the call is made.
type deprived struct {
	plainHook
	t       *testing.T
	admin   *goredis.Client
	user    *goredis.Client
	bare    bool                // without the guard
	scripts map[string]tried    // by their hashes
	times   map[string]int      // how often each was tried
	halves  map[string][]string // the commands whose denial left a half
}

// tried is a script with the text that runs in its place.
type tried struct{ name, text string }

// mostTried bounds for how many calls of each script all commands are tried.
const mostTried = 3

// writers are the names of all scripts that write.
func writers(t *testing.T) (names []string) {
	t.Helper()
	files, err := scriptFiles.ReadDir("scripts")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(f.Name(), ".lua")
		if head, _, _ := strings.Cut(file(name), "\n"); strings.HasPrefix(head, "#!lua") && !strings.Contains(head, "no-writes") {
			names = append(names, name)
		}
	}
	return names
}

// ProcessHook implements [goredis.Hook].
func (d *deprived) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if args := cmd.Args(); args[0] == "evalsha" {
			if s, ok := d.scripts[args[1].(string)]; ok && d.times[s.name] < mostTried {
				d.times[s.name]++
				d.try(ctx, s, args[2:])
			}
		}
		return next(ctx, cmd)
	}
}

func (d *deprived) try(ctx context.Context, s tried, args []any) {
	before := d.stored(ctx)
	for command := range called(s.text) {
		d.allow(ctx, "-"+command)
		err := d.user.Do(ctx, append([]any{"eval", s.text}, args...)...).Err()
		d.allow(ctx, "+"+command)
		if !maps.Equal(d.stored(ctx), before) {
			if err != nil {
				d.halves[s.name] = append(d.halves[s.name], command)
			}
			d.restore(ctx, before)
			before = d.stored(ctx) // the same in other bytes
		}
		if !d.bare && posthaste.CodeOf(writeError(err)) != posthaste.CodeDenied {
			d.t.Errorf("%s without %s: %v", s.name, command, err)
		}
	}
}

func (d *deprived) allow(ctx context.Context, rule string) {
	if err := d.admin.Do(ctx, "acl", "setuser", "app", rule).Err(); err != nil {
		d.t.Error(err)
	}
}

// stored is all that is stored, by its keys.
func (d *deprived) stored(ctx context.Context) map[string]string {
	names, err := d.admin.Keys(ctx, "*").Result()
	if err != nil {
		d.t.Error(err)
	}
	all := map[string]string{}
	for _, name := range names {
		if all[name], err = d.admin.Dump(ctx, name).Result(); err != nil {
			d.t.Error(err)
		}
	}
	return all
}

func (d *deprived) restore(ctx context.Context, all map[string]string) {
	err := d.admin.FlushDB(ctx).Err()
	for name, value := range all {
		err = errors.Join(err, d.admin.RestoreReplace(ctx, name, 0, value).Err())
	}
	if err != nil {
		d.t.Error(err)
	}
}

// shortLife is one of a program, in which each script that writes is called.
type shortLife struct {
	t      *testing.T
	ctx    context.Context
	e      *Engine
	w      posthaste.WorkerID
	number int64
}

// liveShortly runs a short life with a client, on queues of each kind.
func liveShortly(t *testing.T, client *goredis.Client) {
	t.Helper()
	e, err := New(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	l := &shortLife{t: t, ctx: t.Context(), e: e}
	l.begin()
	for _, queue := range []string{jobs, "keyed", "limited"} {
		l.handle(queue)
		l.operate(queue)
	}
	l.end()
}

func (l *shortLife) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *shortLife) claimed(queue, subscription string) []posthaste.RawDelivery {
	l.t.Helper()
	l.number++
	reply, err := l.e.Claim(l.ctx, posthaste.ClaimRequest{Worker: l.w, Number: l.number, QueueRef: posthaste.QueueRef{Queue: queue, Subscription: subscription}, Max: 10, AllowAlone: true})
	l.must(err)
	return reply.Deliveries
}

func (l *shortLife) settled(all []posthaste.RawDelivery, outcomes ...posthaste.Outcome) {
	l.t.Helper()
	var settlements []posthaste.Settlement
	for i, d := range all {
		settlements = append(settlements, posthaste.Settlement{Delivery: d.ID, Outcome: outcomes[i%len(outcomes)], Error: "x"})
	}
	_, err := l.e.Settle(l.ctx, settlements)
	l.must(err)
}

// begin makes what the rest needs.
func (l *shortLife) begin() {
	l.t.Helper()
	e, ctx, must := l.e, l.ctx, l.must
	must(e.CreateQueue(ctx, jobs, posthaste.QueueOptions{MaxAttempts: 2, BackoffBase: time.Microsecond, BackoffMax: time.Microsecond, Retention: time.Hour}))
	must(e.CreateQueue(ctx, "keyed", posthaste.QueueOptions{Ordered: true, Retention: time.Microsecond}))
	must(e.CreateQueue(ctx, "limited", posthaste.QueueOptions{Fair: true}))
	must(e.UpdateQueue(posthaste.WithActor(ctx, "ada"), "limited", posthaste.QueueUpdate{Options: posthaste.QueueOptions{Limits: posthaste.QueueLimits{KeyConcurrency: 1, KeyRateLimit: posthaste.Rate{Limit: 100}}}}))
	must(e.Subscribe(posthaste.WithActor(ctx, "ada"), jobs, "audit", posthaste.SubscriptionOptions{From: posthaste.FromOldest}))
	_, err := e.PutSchedule(ctx, posthaste.Schedule{Name: "s", Spec: "@daily", Message: posthaste.Message{Queue: jobs}})
	must(err)
	_, err = e.CreateToken(posthaste.WithActor(ctx, "ada"), posthaste.Token{Name: "t", Scopes: []posthaste.Scope{posthaste.ScopeSend}})
	must(err)
	l.w, err = e.Register(ctx, posthaste.WorkerInfo{Name: "w", Lease: time.Hour})
	must(err)
	doorbell, err := e.Doorbell(ctx)
	must(err)
	defer doorbell.Close()
	must(doorbell.Sleep(ctx, jobs, func(context.Context) (posthaste.LookReply, error) { return posthaste.LookReply{Found: true}, nil }))
}

// handle has messages of a queue sent, taken back, handled and replayed.
func (l *shortLife) handle(queue string) {
	l.t.Helper()
	e, ctx, must := l.e, l.ctx, l.must
	l.claimed(queue, "")
	ids, err := posthaste.IDs(e.Send(ctx, slices.Repeat([]posthaste.Message{{Queue: queue, Key: "k", Reference: "r", Terms: []string{"term"}}}, 8)...))
	must(err)
	_, _, err = e.SendOnce(ctx, posthaste.Idempotency{Key: queue, Digest: []byte("d"), Window: time.Hour}, posthaste.Message{Queue: queue, Key: "k", DedupeKey: "d", DedupeWindow: time.Hour})
	must(err)
	_, err = e.Send(ctx, posthaste.Message{Queue: queue, Key: "k", Unique: &posthaste.Unique{}})
	must(err)
	if queue != jobs {
		must(e.Pause(posthaste.WithActor(ctx, "ada"), posthaste.OfKey{Queue: queue, Key: "other"}, posthaste.PauseOptions{}))
	}
	_, err = e.Cancel(posthaste.WithActor(ctx, "ada"), ids[7])
	must(err)
	if queue != "keyed" {
		_, err = e.Reschedule(posthaste.WithActor(ctx, "ada"), ids[6], time.Now().Add(time.Hour))
		must(err)
		_, err = e.UpdateMessage(posthaste.WithActor(ctx, "ada"), ids[6], posthaste.MessageUpdate{Payload: 1})
		must(err)
	}
	_, err = e.Heartbeat(ctx, posthaste.Heartbeat{Worker: l.w, Queues: []posthaste.QueueRef{{Queue: jobs}, {Queue: queue}}})
	must(err)
	got := l.claimed(queue, "")
	_, err = e.Unsettled(ctx, l.w, l.number)
	must(err)
	l.settled(got, posthaste.OutcomeDone, posthaste.OutcomeDead, posthaste.OutcomeRetried, posthaste.OutcomeReleased, posthaste.OutcomeSetAside)
	dead, err := e.DeadLetters(ctx, posthaste.DeadLetterFilter{Queue: queue})
	must(err)
	if len(dead.Items) > 0 {
		_, err = e.Replay(posthaste.WithActor(ctx, "ada"), posthaste.DeadLetterFilter{IDs: []posthaste.MessageID{dead.Items[0].ID}})
		must(err)
	}
}

// operate has a queue received from, paused and purged.
func (l *shortLife) operate(queue string) {
	l.t.Helper()
	e, ctx, must := l.e, l.ctx, l.must
	received, err := e.Receive(ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: queue}, Max: 3, Lease: time.Hour})
	must(err)
	if len(received.Deliveries) > 0 {
		note := posthaste.Note{Checkpoint: []byte(`1`), Log: "line\n"}
		_, err = e.Extend(ctx, posthaste.ExtendRequest{Deliveries: []posthaste.DeliveryID{received.Deliveries[0].ID}, Lease: time.Minute, Notes: []posthaste.Note{note}})
		must(err)
		_, err = e.Extend(ctx, posthaste.ExtendRequest{Deliveries: []posthaste.DeliveryID{received.Deliveries[0].ID}, Lease: time.Nanosecond * 1000})
		must(err)
	}
	must(e.Pause(posthaste.WithActor(ctx, "ada"), posthaste.OfQueue(queue), posthaste.PauseOptions{}))
	_, err = e.PurgeQueue(posthaste.WithActor(ctx, "ada"), queue)
	must(err)
	must(e.Resume(posthaste.WithActor(ctx, "ada"), posthaste.OfQueue(queue)))
	if queue != jobs {
		must(e.Resume(posthaste.WithActor(ctx, "ada"), posthaste.OfKey{Queue: queue, Key: "other"}))
	}
}

// end cleans up.
func (l *shortLife) end() {
	l.t.Helper()
	e, ctx, must := l.e, l.ctx, l.must
	l.settled(l.claimed(jobs, "audit"), posthaste.OutcomeDone)
	failures := []posthaste.ErrorCount{{Fingerprint: "x", Error: "x", Count: 1}}
	must(e.Report(ctx, l.w, []posthaste.HandlerStats{{Queue: jobs, Kind: "k", Done: 1, Errors: failures}, {Queue: jobs, Subscription: "audit", Done: 1}, {Queue: "limited", Done: 1}}))
	_, err := e.Maintain(ctx, posthaste.UpkeepSpace)
	must(err)
	_, err = e.Erase(posthaste.WithActor(ctx, "ada"), "term", 0)
	must(err)
	must(e.Unsubscribe(posthaste.WithActor(ctx, "ada"), jobs, "audit", posthaste.DropOptions{}))
	must(e.client.HSet(ctx, e.keys.queues(), enrolled(jobs, "stray"), e.client.HGet(ctx, e.keys.queues(), jobs).Val()).Err())
	all, err := e.registry.read(ctx)
	must(err)
	must(e.removeStrayEnrollments(ctx, all[jobs], 0))
	must(e.DropQueue(ctx, "keyed", posthaste.DropOptions{}))
	must(e.DropSchedule(ctx, "s"))
	must(e.RevokeToken(posthaste.WithActor(ctx, "ada"), "t"))
	must(e.Unregister(ctx, l.w))
}

// denied lives a life in which rights are taken away.
func denied(t *testing.T, bare bool) *deprived {
	t.Helper()
	r := start(t)
	clients := map[string]*goredis.Client{}
	for _, name := range []string{"admin", "app", "program"} {
		o := &goredis.Options{Addr: r.Address(), MaxRetries: -1}
		if name == "app" {
			o.Username, o.Password = "app", "pw"
		}
		clients[name] = goredis.NewClient(o)
		t.Cleanup(func() { clients[name].Close() })
	}
	if err := clients["admin"].Do(t.Context(), "acl", "setuser", "app", "on", ">pw", "~{posthaste*", "&{posthaste*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	d := &deprived{t: t, admin: clients["admin"], user: clients["app"], bare: bare, scripts: map[string]tried{}, times: map[string]int{}, halves: map[string][]string{}}
	for _, name := range writers(t) {
		for _, s := range []script{load(name), load(name).several()} {
			text := s.read().text
			if bare {
				text = strings.ReplaceAll(text, "\nmay(", "\n-- may(")
			}
			d.scripts[s.read().sha] = tried{name, text}
		}
	}
	clients["program"].AddHook(d)
	liveShortly(t, clients["program"])
	return d
}

// If rights are revoked while programs run, no script does half of its work, whichever of its
// commands is denied. Without the check of their rights, most scripts do.
func TestDeniedScriptsDoNothing(t *testing.T) {
	t.Parallel()
	d := denied(t, false)
	for name, commands := range d.halves {
		t.Errorf("script %s without one of %s has written", name, commands)
	}
	for _, name := range writers(t) {
		if d.times[name] == 0 {
			t.Errorf("script %s was not tried", name)
		}
	}
	if d := denied(t, true); len(d.halves["claim"]) < 2 || len(d.halves["send"]) < 2 || len(d.halves) < 15 {
		t.Errorf("without the look, halves were found of %v", d.halves)
	}
}
