package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/enginetest"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// node is a server of a cluster, with a client of its own.
type node struct {
	*devbroker.Redis
	client *goredis.Client
	id     string
}

// nodes starts n servers of a cluster. The first three are masters, which share the
// slots, and each further one is a replica of the next of them.
func nodes(t *testing.T, n int, args ...string) (all []*node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i := range n {
		r, err := devbroker.StartRedisNode(ctx, t.TempDir(), args...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Stop)
		c := goredis.NewClient(&goredis.Options{Addr: r.Address()})
		t.Cleanup(func() { c.Close() })
		id, err := c.Do(ctx, "cluster", "myid").Text()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, &node{r, c, id})
		if i < 3 {
			err = c.ClusterAddSlotsRange(ctx, i*16384/3, (i+1)*16384/3-1).Err()
		}
		if host, port, _ := net.SplitHostPort(r.Address()); err == nil {
			err = all[0].client.Do(ctx, "cluster", "meet", host, port, r.BusPort()).Err()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	until(t, "the cluster serves", func() bool {
		for _, m := range all {
			info, err := m.client.ClusterInfo(ctx).Result()
			if err != nil || !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", n)) || !strings.Contains(info, "cluster_size:3") {
				return false
			}
		}
		return true
	})
	for i, m := range all[3:] {
		until(t, "a replica knows its master", func() bool { return m.client.ClusterReplicate(ctx, all[i].id).Err() == nil })
	}
	for _, m := range all[3:] {
		until(t, "a replica has what its master has", m.follows)
	}
	return all
}

// parted are settings of a cluster whose other masters keep serving while one is away, and
// whose masters may be killed and restarted: they write each change to the append-only file
// before they answer. With appendfsync everysec they do not while a slow disk is being
// flushed, and changes that were answered up to two seconds ago, even to the registry, may be
// lost with the process. No test waits for the disk itself, which matters only if the machine
// fails.
var parted = []string{"--cluster-require-full-coverage", "no", "--appendfsync", "no"}

// follows says that the node is a replica that has all, also in its append-only file,
// and gets what comes.
func (m *node) follows() bool {
	is, err := about(context.Background(), m.client)
	return err == nil && is["role"] == "slave" && is["master_link_status"] == "up" && is["loading"] == "0" &&
		is["aof_rewrite_in_progress"] == "0" && is["aof_rewrite_scheduled"] == "0"
}

// cluster starts one of three masters.
func cluster(t *testing.T) (addresses []string) {
	t.Helper()
	for _, m := range nodes(t, 3) {
		addresses = append(addresses, m.Address())
	}
	return addresses
}

// In a cluster everything of a queue is in one slot, and queues are in many.
func TestEngineInCluster(t *testing.T) {
	addresses := cluster(t)
	client := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: addresses})
	t.Cleanup(func() { client.Close() })
	url := "redis://" + addresses[0] + "?cluster=true&addr=" + addresses[1]
	can := enginetest.All()
	can.SendAcross, can.MaxLag, can.SQL = false, false, false
	enginetest.Run(t, can, func(t *testing.T) posthaste.Store {
		e, err := Open(t.Context(), url, WithPrefix(fmt.Sprintf("cluster%d", prefixes.Add(1))))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(e.Close)
		return e
	})
	lazy, err := Open(t.Context(), url, WithPrefix("lazy"), WithLazyConnect())
	if err != nil {
		t.Fatal(err)
	}
	defer lazy.Close()
	create(t, lazy, posthaste.QueueOptions{})
	send(t, lazy, 1)
	if have, err := client.Get(t.Context(), lazy.keys.layout()).Result(); have != layoutVersion {
		t.Errorf("an engine that was opened lazily checked nothing: the layout is %q, %v", have, err)
	}
	// One of its servers, opened by itself, says what to do instead.
	for i, address := range addresses {
		e, err := Open(t.Context(), "redis://"+address, WithPrefix("alone"))
		for n := 0; err == nil && n < 100; n++ { // the one that has the registry
			err = e.CreateQueue(t.Context(), fmt.Sprintf("q%d", n), posthaste.QueueOptions{})
		}
		var said *posthaste.Error
		if !errors.As(err, &said) || said.Code != posthaste.CodeUnsupported || !strings.Contains(said.Hint, "cluster=true") {
			t.Errorf("server %d of the cluster by itself: %v", i, err)
		}
		if e != nil {
			e.Close()
		}
		e, err = Open(t.Context(), "redis://"+address+"/1", WithPrefix("alone"))
		if said := wantRefused(t, "a number of a database in a cluster", e, err, posthaste.CodeUnsupported); !strings.Contains(said.Hint, "cluster=true") {
			t.Errorf("a number of a database in a cluster: %v", said)
		}
	}
	e, err := New(t.Context(), client, WithPrefix("across"))
	if err != nil {
		t.Fatal(err)
	}
	if !e.cluster {
		t.Error("a client of a cluster is taken for one of one Redis")
	}
	for _, name := range []string{"a", "b"} {
		if err := e.CreateQueue(t.Context(), name, posthaste.QueueOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.Send(t.Context(), posthaste.Message{Queue: "a"}, posthaste.Message{Queue: "b"}); posthaste.CodeOf(err) != posthaste.CodeUnsupported {
		t.Errorf("sending to two queues: %v", err)
	}
	// A key that was used for one queue is refused for another, which is in another slot.
	request := posthaste.Idempotency{Scope: "s", Key: "k", Digest: []byte("a"), Window: time.Hour}
	if _, _, err := e.SendOnce(t.Context(), request, posthaste.Message{Queue: "a"}); err != nil {
		t.Fatal(err)
	}
	request.Digest = []byte("b")
	if _, _, err := e.SendOnce(t.Context(), request, posthaste.Message{Queue: "b"}); posthaste.CodeOf(err) != posthaste.CodeKeyReused {
		t.Errorf("the same key for another queue: %v", err)
	}
}

// Every master of a cluster is looked at, whichever has the registry, and told by its
// address: by who starts, and by Doctor.
func TestEveryMasterIsLookedAt(t *testing.T) {
	t.Parallel()
	all := nodes(t, 3)
	before := onCluster(t, all)
	client, ok := before.client.(*goredis.ClusterClient)
	if !ok {
		t.Fatal("no client of a cluster")
	}
	set := func(m *node, pairs ...string) {
		for i := 0; i < len(pairs); i += 2 {
			if err := m.client.ConfigSet(t.Context(), pairs[i], pairs[i+1]).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, m := range all {
		set(m, "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru", "appendonly", "no")
		e, err := New(t.Context(), client, WithPrefix(fmt.Sprint("evicted", i)))
		if said := wantRefused(t, m.Address(), e, err, posthaste.CodeUnsupported); !strings.Contains(said.Message, m.Address()) {
			t.Errorf("%v does not name %s", said, m.Address())
		}
		found, err := before.Doctor(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		checks := map[string]bool{}
		for _, f := range found {
			if strings.Contains(f.Message, m.Address()) {
				checks[f.Check] = true
			}
		}
		if len(found) != 2 || !checks["memory"] || !checks["persistence"] {
			t.Errorf("of server %s is found %+v", m.Address(), found)
		}
		set(m, "maxmemory", "0", "maxmemory-policy", "noeviction", "appendonly", "yes")
	}
	for _, m := range all {
		names, err := m.client.Keys(t.Context(), "*evicted*").Result()
		if err != nil || len(names) > 0 {
			t.Errorf("%v were written: %v", names, err)
		}
	}
}

// A user of a cluster needs one permission more, and is told.
func TestPermissionsInCluster(t *testing.T) {
	t.Parallel()
	all := nodes(t, 3)
	var addresses []string
	for _, m := range all {
		addresses = append(addresses, m.Address())
		for user, further := range map[string]string{"app": "+cluster|slots", "poor": "+time"} {
			if err := m.client.Do(t.Context(), "acl", "setuser", user, "on", ">pw", "~{posthaste*", "&{posthaste*", "+@read", "+@write", "+@scripting", "+@connection", "+publish", "+subscribe", "+info", "+time", further).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	as := func(user string) *goredis.ClusterClient {
		c := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: addresses, Username: user, Password: "pw"})
		t.Cleanup(func() { c.Close() })
		return c
	}
	e, err := New(t.Context(), as("poor"))
	wantRefused(t, "without CLUSTER SLOTS", e, err, posthaste.CodeDenied)
	if e, err = New(t.Context(), as("app")); err != nil {
		t.Fatal(err)
	}
	create(t, e, posthaste.QueueOptions{})
	send(t, e, 3)
	if n := done(t, e, claim(t, e, register(t, e), 1, 3)...); n != 3 {
		t.Errorf("%d were settled", n)
	}
	if _, err := e.Doctor(t.Context()); err != nil {
		t.Error(err)
	}
}

// A master that is away affects only its own queues. On the others, messages of a lost worker
// are redelivered, those of a living worker are reported as unsettled, and those of a worker
// that unregisters are rescued.
func TestRescueWithoutAMaster(t *testing.T) {
	t.Parallel()
	all := nodes(t, 3, parted...)
	e := onCluster(t, all)
	registry, queues := oneOnEach(t, e, all)
	for _, name := range queues {
		if err := e.Subscribe(posthaste.WithActor(t.Context(), "ada"), name, "other", posthaste.SubscriptionOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	away := (registry + 1) % 3
	name := queues[(registry+2)%3]
	lost, leaves, lives := register(t, e), register(t, e), register(t, e)
	if _, err := e.Send(t.Context(), posthaste.Message{Queue: name}, posthaste.Message{Queue: name}, posthaste.Message{Queue: name}); err != nil {
		t.Fatal(err)
	}
	refs := []posthaste.QueueRef{{Queue: name}, {Queue: name, Subscription: "other"}}
	for _, w := range []posthaste.WorkerID{lost, leaves, lives} {
		for i, ref := range refs {
			reply, err := e.Claim(t.Context(), posthaste.ClaimRequest{Worker: w, Number: int64(i + 1), QueueRef: ref, Max: 1})
			if err != nil || len(reply.Deliveries) != 1 {
				t.Fatalf("%+v: %v", reply, err)
			}
		}
	}
	for _, ref := range refs { // its lease is over
		q, err := e.registry.find(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.client.ZAdd(t.Context(), e.keys.own(name, q.subscription, "leases"), goredis.Z{Score: 1, Member: lost.String()}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	all[away].Kill()
	for what, one := range map[string]*Engine{"known queues": e, "queues to be read": onCluster(t, []*node{all[registry], all[(registry+2)%3]})} {
		held, err := one.Unsettled(t.Context(), lives, 10)
		if len(held) != 2 || posthaste.CodeOf(err) != posthaste.CodeUnavailable {
			t.Errorf("%s: the living worker holds %v: %v; want its two, and what could not be looked at", what, held, err)
		}
	}
	n, err := e.Maintain(t.Context(), posthaste.UpkeepRescue)
	if n.Rescued != 2 || posthaste.CodeOf(err) != posthaste.CodeUnavailable {
		t.Errorf("%d were rescued: %v; want 2, and what could not be looked at", n.Rescued, err)
	}
	if err := e.Unregister(t.Context(), leaves); posthaste.CodeOf(err) != posthaste.CodeUnavailable {
		t.Errorf("unregistered: %v", err)
	}
	if n, _ = e.Maintain(t.Context(), posthaste.UpkeepRescue); n.Rescued != 2 {
		t.Errorf("%d of who left were rescued, want 2", n.Rescued)
	}
	if _, err := e.Send(t.Context(), posthaste.Message{Queue: name}); err != nil {
		t.Errorf("sending beside it: %v", err)
	}
	found, err := e.Doctor(t.Context())
	if err != nil || len(found) == 0 || found[0].Check != "connection" || !strings.Contains(found[0].Message, all[away].Address()) {
		t.Errorf("Doctor finds %+v: %v", found, err)
	}
}

// oneOnEach makes a queue on each of three masters, and says which has the registry.
func oneOnEach(t *testing.T, e *Engine, all []*node) (registry int, queues map[int]string) {
	t.Helper()
	queues = map[int]string{}
	for n := 0; len(queues) < 3; n++ {
		name := fmt.Sprint("q", n)
		on := slotOf(t, all, e.keys.of(name, "meta")) * 3 / 16384
		if queues[on] != "" {
			continue
		}
		queues[on] = name
		if err := e.CreateQueue(t.Context(), name, posthaste.QueueOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return slotOf(t, all, e.keys.queues()) * 3 / 16384, queues
}

// Schedules of queues on a master that is away come first in line, but do not hold up the
// schedules of other queues. Their missed ticks are caught up when the master is back.
func TestTicksWithoutAMaster(t *testing.T) {
	t.Parallel()
	all := nodes(t, 3, parted...)
	e := onCluster(t, all)
	registry, queues := oneOnEach(t, e, all)
	away := (registry + 1) % 3
	for i, name := range []string{queues[away], queues[registry], queues[(registry+2)%3]} {
		for n := range 5 {
			s := posthaste.Schedule{Name: fmt.Sprint(i, "-", n), Spec: "every 1 second", CatchUp: posthaste.CatchUpOnce, Message: posthaste.Message{Queue: name, Payload: 1}}
			if _, err := e.PutSchedule(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
	}
	depth := func(name string) int64 {
		infos, err := e.Queues(t.Context(), name)
		if err != nil || len(infos) == 0 {
			return -1
		}
		return infos[0].Subscriptions[0].Depth
	}
	all[away].Kill()
	until(t, "all are due, those of who is away first", func() bool {
		due, _, _, err := e.readSchedules(t.Context(), dueUpTo(dueMost))
		return err == nil && len(due) == 15
	})
	told := false
	tries(20, 2*time.Second, func() bool {
		reply, err := e.Maintain(t.Context(), posthaste.UpkeepTicks)
		told = told || posthaste.CodeOf(err) == posthaste.CodeUnavailable
		return reply.TicksSent >= 10
	})
	for _, name := range []string{queues[registry], queues[(registry+2)%3]} {
		until(t, "others are sent", func() bool { return depth(name) >= 5 })
	}
	until(t, "it is told that some are not", func() bool {
		_, err := e.Maintain(t.Context(), posthaste.UpkeepTicks)
		told = told || posthaste.CodeOf(err) == posthaste.CodeUnavailable
		return told
	})
	if err := all[away].Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "the missed ticks are sent", func() bool {
		_, _ = e.Maintain(t.Context(), posthaste.UpkeepTicks)
		return depth(queues[away]) >= 5
	})
}

// The same holds for a master that accepts commands and does not answer: the schedules of its
// queues are tried now and then, after all others.
func TestTicksWithAMasterThatHangs(t *testing.T) {
	t.Parallel()
	testrun.Nightly(t, "each call waits until its client gives up")
	all := nodes(t, 3, parted...)
	e := onCluster(t, all)
	registry, queues := oneOnEach(t, e, all)
	away, there := (registry+1)%3, queues[(registry+2)%3]
	hangs := []string{queues[away]}
	for n := 0; len(hangs) < 3; n++ {
		name := fmt.Sprint("further", n)
		if slotOf(t, all, e.keys.of(name, "meta"))*3/16384 != away {
			continue
		}
		hangs = append(hangs, name)
		if err := e.CreateQueue(t.Context(), name, posthaste.QueueOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i, name := range append(hangs, there) {
		s := posthaste.Schedule{Name: fmt.Sprint(i), Spec: "every 1 second", CatchUp: posthaste.CatchUpOnce, Message: posthaste.Message{Queue: name, Payload: 1}}
		if _, err := e.PutSchedule(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "all are due", func() bool {
		due, _, _, err := e.readSchedules(t.Context(), dueUpTo(dueMost))
		return err == nil && len(due) == 4
	})
	if err := all[away].client.Do(t.Context(), "client", "pause", 120_000, "write").Err(); err != nil {
		t.Fatal(err)
	}
	sent := 0
	for call := 1; sent == 0; call++ {
		if call > 4 {
			t.Fatal("four calls have sent nothing")
		}
		reply, _ := e.Maintain(t.Context(), posthaste.UpkeepTicks)
		sent += reply.TicksSent
	}
	if err := all[away].client.Do(t.Context(), "client", "unpause").Err(); err != nil {
		t.Fatal(err)
	}
	until(t, "what hung is sent", func() bool {
		_, _ = e.Maintain(t.Context(), posthaste.UpkeepTicks)
		for _, name := range hangs {
			if infos, err := e.Queues(t.Context(), name); err != nil || infos[0].Subscriptions[0].Depth == 0 {
				return false
			}
		}
		return true
	})
}

// A delivery of a subscription that cannot be read is reported as unavailable, not as unknown.
func TestDeliveryOfAMasterThatIsAway(t *testing.T) {
	t.Parallel()
	all := nodes(t, 3, parted...)
	e := onCluster(t, all)
	registry, queues := oneOnEach(t, e, all)
	away, there := (registry+1)%3, (registry+2)%3
	if err := e.Subscribe(posthaste.WithActor(t.Context(), "ada"), queues[away], "other", posthaste.SubscriptionOptions{}); err != nil {
		t.Fatal(err)
	}
	ref := posthaste.QueueRef{Queue: queues[away], Subscription: "other"}
	if _, err := e.Send(t.Context(), posthaste.Message{Queue: queues[away]}); err != nil {
		t.Fatal(err)
	}
	reply, err := e.Claim(t.Context(), posthaste.ClaimRequest{Worker: register(t, e), Number: 1, QueueRef: ref, Max: 1})
	if err != nil || len(reply.Deliveries) != 1 {
		t.Fatalf("%+v: %v", reply, err)
	}
	id := reply.Deliveries[0].ID
	dropped := queues[there]
	if _, err := e.Send(t.Context(), posthaste.Message{Queue: dropped}); err != nil {
		t.Fatal(err)
	}
	reply, err = e.Claim(t.Context(), posthaste.ClaimRequest{Worker: register(t, e), Number: 1, QueueRef: posthaste.QueueRef{Queue: dropped}, Max: 1})
	if err != nil || len(reply.Deliveries) != 1 {
		t.Fatalf("%+v: %v", reply, err)
	}
	if err := e.DropQueue(t.Context(), dropped, posthaste.DropOptions{}); err != nil {
		t.Fatal(err)
	}
	all[away].Kill()
	other := onCluster(t, []*node{all[registry], all[there]})
	results, err := other.Settle(t.Context(), []posthaste.Settlement{{Delivery: id, Outcome: posthaste.OutcomeDone}})
	if posthaste.CodeOf(err) != posthaste.CodeUnavailable {
		t.Errorf("settling it: %+v, %v; want Unavailable", results, err)
	}
	results, err = other.Settle(t.Context(), []posthaste.Settlement{{Delivery: reply.Deliveries[0].ID, Outcome: posthaste.OutcomeDone}})
	if err != nil || results[0].Settled {
		t.Errorf("settling what a dropped queue had: %+v, %v", results, err)
	}
}
