package nats

import (
	"context"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

func workersOf(t *testing.T, ctx context.Context, e *Engine) []posthaste.WorkerStatus {
	t.Helper()
	all, err := e.Workers(ctx)
	must(t, err)
	return all
}

// beatOf sends a heartbeat, and returns its reply.
func beatOf(t *testing.T, ctx context.Context, e *Engine, w posthaste.WorkerID) posthaste.HeartbeatReply {
	t.Helper()
	reply, err := e.Heartbeat(ctx, posthaste.Heartbeat{Worker: w})
	must(t, err)
	return reply
}

// hold makes an engine hold a delivery that no server has handed out, until the test ends.
func hold(t *testing.T, ctx context.Context, e *Engine, w posthaste.WorkerID) *held {
	t.Helper()
	q, err := e.queue(ctx, "jobs")
	must(t, err)
	d := &held{q: q, sub: q.subscription(posthaste.DefaultSubscription), meta: &meta{}, until: uptime() + time.Hour}
	e.holding.add(d, w)
	return d
}

// All processes list a worker with its last state, and any of them takes its heartbeats.
func TestWorkersAreListed(t *testing.T) {
	t.Parallel()
	ctx, a, b := two(t)
	workersAreListed(t, ctx, a, b)
}

func workersAreListed(t *testing.T, ctx context.Context, a, b *Engine) {
	_, err := a.Register(ctx, posthaste.WorkerInfo{Name: "none"})
	wantCode(t, "no lease", err, posthaste.CodeInvalid)
	sinks := []posthaste.WorkerSink{{Queue: "jobs", Subscription: "default", Destination: "kafka"}}
	w, err := a.Register(ctx, posthaste.WorkerInfo{Name: "host/1", Version: "v1", Lease: time.Minute, Sinks: sinks,
		Kinds: map[posthaste.QueueRef][]string{{Queue: "jobs"}: {"mail"}}})
	must(t, err)
	first := workersOf(t, ctx, b)
	if len(first) != 1 || first[0].ID != w || first[0].Name != "host/1" || first[0].Version != "v1" || !reflect.DeepEqual(first[0].Sinks, sinks) ||
		!first[0].LostAt.IsZero() || time.Since(first[0].StartedAt).Abs() > time.Minute {
		t.Fatalf("the workers are %+v", first)
	}
	if is, _, err := b.workers.read(ctx, workerKey(w)); err != nil || !reflect.DeepEqual(is.Kinds, []handledKinds{{"jobs", "default", []string{"mail"}}}) {
		t.Errorf("its kinds are stored as %+v, %v", is, err)
	}
	other := registered(t, ctx, b, time.Hour)
	for i, e := range []*Engine{b, a, b} {
		state := posthaste.WorkerState{Concurrency: 5 + i, Running: []posthaste.RunningMessage{{Message: 3, Queue: "jobs", Ran: time.Second}}}
		ahead(time.Second, a, b)
		reply, err := e.Heartbeat(ctx, posthaste.Heartbeat{Worker: w, State: state, Queues: []posthaste.QueueRef{{Queue: "nowhere"}, {Queue: "jobs"}}})
		must(t, err)
		if len(reply.Looks) != 2 || reply.Looks[0].NextDue != -1 || reply.Looks[1].Found || reply.QueuesUnknown {
			t.Errorf("the looks are %+v", reply)
		}
		for _, x := range []*Engine{a, b} {
			if all := workersOf(t, ctx, x); len(all) != 2 || all[1].ID != other || !reflect.DeepEqual(all[0].State, state) || !all[0].HeartbeatAt.After(first[0].HeartbeatAt) {
				t.Errorf("after heartbeat %d the workers are %+v", i, all)
			}
		}
	}
	must(t, a.Report(ctx, w, []posthaste.HandlerStats{{Queue: "jobs", Done: 1}}))
	must(t, b.Unregister(ctx, w))
	must(t, b.Unregister(ctx, w))
	if all := workersOf(t, ctx, a); len(all) != 1 || all[0].ID != other {
		t.Errorf("after one has gone the workers are %+v", all)
	}
	for i, e := range []*Engine{a, b} {
		_, err = e.Heartbeat(ctx, posthaste.Heartbeat{Worker: w})
		wantCode(t, "a heartbeat", err, posthaste.CodeWorkerLost)
		wantCode(t, "a report", e.Report(ctx, w, nil), posthaste.CodeWorkerLost)
		_, err = e.Claim(ctx, posthaste.ClaimRequest{Worker: w, Number: int64(i + 1), Max: 1, QueueRef: posthaste.QueueRef{Queue: "jobs"}})
		wantCode(t, "a claim", err, posthaste.CodeWorkerLost)
	}
}

// A worker whose lease ends is lost for good, is told so, and is forgotten later.
func TestLateWorkersAreLost(t *testing.T) {
	t.Parallel()
	ctx, a, b := two(t)
	lost, kept, long := registered(t, ctx, a, time.Minute), registered(t, ctx, a, time.Minute), registered(t, ctx, b, time.Hour)
	workersOf(t, ctx, b)
	if reply := beatOf(t, ctx, b, long); reply.Rescue || reply.RescueIn <= 50*time.Second || reply.RescueIn > time.Minute {
		t.Errorf("before, it is told %+v", reply)
	}
	ahead(40*time.Second, a, b)
	beatOf(t, ctx, a, kept)
	ahead(40*time.Second, a, b)
	began := lostOf(t, ctx, b)
	if len(began) != 1 || began[lost].IsZero() {
		t.Errorf("lost are %v, want %s", began, lost)
	}
	if reply := beatOf(t, ctx, b, long); !reply.Rescue {
		t.Errorf("when one is late, it is told %+v", reply)
	}
	_, err := b.Maintain(ctx, posthaste.UpkeepRescue)
	must(t, err)
	if reply := beatOf(t, ctx, b, long); reply.Rescue || reply.RescueIn <= 0 {
		t.Errorf("after the rescue it is told %+v", reply)
	}
	for range 2 {
		_, err := a.Heartbeat(ctx, posthaste.Heartbeat{Worker: lost})
		wantCode(t, "its heartbeat", err, posthaste.CodeWorkerLost)
	}
	if got := lostOf(t, ctx, a); !reflect.DeepEqual(got, began) {
		t.Errorf("after its heartbeat, lost are %v, were %v", got, began)
	}
	beatOf(t, ctx, b, kept)
	ahead(lostKept, a, b)
	_, err = b.Maintain(ctx, posthaste.UpkeepSpace)
	must(t, err)
	ids := []posthaste.WorkerID{}
	for _, w := range workersOf(t, ctx, a) {
		ids = append(ids, w.ID)
	}
	if !slices.Equal(ids, []posthaste.WorkerID{kept, long}) {
		t.Errorf("later the workers are %v, want %v", ids, []posthaste.WorkerID{kept, long})
	}
	_, err = a.Heartbeat(ctx, posthaste.Heartbeat{Worker: lost})
	wantCode(t, "its heartbeat later", err, posthaste.CodeWorkerLost)
}

func lostOf(t *testing.T, ctx context.Context, e *Engine) map[posthaste.WorkerID]time.Time {
	t.Helper()
	all := map[posthaste.WorkerID]time.Time{}
	for _, w := range workersOf(t, ctx, e) {
		if !w.LostAt.IsZero() {
			all[w.ID] = w.LostAt
		}
	}
	return all
}

// A process that was frozen for longer than a worker's lease finds that by its own clock, even if the
// clock that can be set says that no time has passed; but not if another process had the heartbeats.
func TestFrozenWorkersAreLost(t *testing.T) {
	t.Parallel()
	ctx, a, b := two(t)
	frozen, elsewhere := registered(t, ctx, a, time.Minute), registered(t, ctx, a, time.Minute)
	for _, w := range []posthaste.WorkerID{frozen, elsewhere} {
		_, revision := a.workers.known(workerKey(w))
		a.workers.noteBeat(w, lastBeat{at: uptime() - 2*time.Minute, revision: revision})
	}
	beatOf(t, ctx, b, elsewhere)
	workersOf(t, ctx, a)
	_, err := a.Claim(ctx, posthaste.ClaimRequest{Worker: frozen, Number: 1, Max: 1, QueueRef: posthaste.QueueRef{Queue: "jobs"}})
	wantCode(t, "a claim", err, posthaste.CodeWorkerLost)
	beatOf(t, ctx, a, elsewhere)
	_, err = a.Heartbeat(ctx, posthaste.Heartbeat{Worker: frozen})
	wantCode(t, "a heartbeat", err, posthaste.CodeWorkerLost)
	_, err = b.Heartbeat(ctx, posthaste.Heartbeat{Worker: frozen})
	wantCode(t, "a heartbeat by another process", err, posthaste.CodeWorkerLost)
}

func TestHeartbeatTellsCancelledDeliveries(t *testing.T) {
	t.Parallel()
	ctx, a, _ := two(t)
	w, other := registered(t, ctx, a, time.Minute), registered(t, ctx, a, time.Minute)
	one, two := hold(t, ctx, a, w), hold(t, ctx, a, w)
	a.holding.mu.Lock()
	two.cancelled = true
	a.holding.mu.Unlock()
	if got := beatOf(t, ctx, a, w).Cancelled; !slices.Equal(got, []posthaste.DeliveryID{two.id}) {
		t.Errorf("of %s and %s it tells %v", one.id, two.id, got)
	}
	if got := beatOf(t, ctx, a, other).Cancelled; len(got) != 0 {
		t.Errorf("it tells another worker %v", got)
	}
}

// A process finds the queues of deliveries that others hold.
func TestDeliveryQueues(t *testing.T) {
	t.Parallel()
	ctx, a, b := two(t)
	mine, theirs := hold(t, ctx, a, 0), hold(t, ctx, b, 0)
	got, err := a.DeliveryQueues(ctx, mine.id, 1<<50, theirs.id, theirs.id+1, mine.id+1)
	must(t, err)
	if want := []string{"jobs", "", "jobs", "", ""}; !slices.Equal(got, want) {
		t.Errorf("the queues are %q, want %q", got, want)
	}
	if none, err := a.DeliveryQueues(ctx); err != nil || len(none) != 0 {
		t.Errorf("of none: %q, %v", none, err)
	}
}
