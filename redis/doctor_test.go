package redis

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
)

// said are the findings of a doctor, each as check, whether it is a fault, and words.
func said(found []posthaste.Finding) (all []string) {
	for _, f := range found {
		all = append(all, fmt.Sprintf("%s %t: %s (%s)", f.Check, f.Fault, f.Message, f.Hint))
	}
	return all
}

// Doctor reports each problem of Redis and of the queues and workers on it, with its cause and
// a hint, and nothing where all is well.
func TestDoctor(t *testing.T) {
	t.Parallel()
	r := start(t)
	e := open(t, r.URL())
	create(t, e, posthaste.QueueOptions{})
	look := func() []posthaste.Finding {
		t.Helper()
		found, err := e.Doctor(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	finds := func(check string, fault bool, words string) {
		t.Helper()
		found := look()
		if !slices.ContainsFunc(found, func(f posthaste.Finding) bool {
			return f.Check == check && f.Fault == fault && strings.Contains(f.Message, words) && f.Hint != ""
		}) {
			t.Errorf("%s, which says %q, is not among %q", check, words, said(found))
		}
	}
	set := func(name, value string) {
		t.Helper()
		if err := e.client.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if found := look(); len(found) > 0 {
		t.Errorf("all is well, and it finds %q", said(found))
	}
	set("appendonly", "no")
	finds("persistence", false, "no append-only file")
	set("appendonly", "yes")
	set("maxmemory-policy", "volatile-lru")
	finds("memory", false, "volatile-lru")
	set("maxmemory-policy", "allkeys-lfu")
	finds("memory", false, "allkeys-lfu")
	set("maxmemory", "1gb")
	finds("memory", true, "allkeys-lfu")
	set("maxmemory-policy", "noeviction")
	set("maxmemory", "900kb") // less than it uses
	finds("memory", false, "of its maxmemory")
	set("maxmemory", "0")
	finds = func(check string, fault bool, words string) {
		t.Helper()
		found := look()
		if len(found) != 1 || found[0].Check != check || found[0].Fault != fault || !strings.Contains(found[0].Message, words) || found[0].Hint == "" {
			t.Errorf("instead of %s, which says %q, it finds %q", check, words, said(found))
		}
	}

	// Messages that no worker takes: as if the oldest had been sent six minutes ago.
	old := micros(time.Now().Add(-6 * time.Minute))
	if err := e.client.LPush(t.Context(), e.keys.of(jobs, "ready0"), old).Err(); err != nil {
		t.Fatal(err)
	}
	finds("behind", false, `"default" of queue "jobs"`)
	if err := e.Pause(posthaste.WithActor(t.Context(), "ada"), posthaste.OfQueue(jobs), posthaste.PauseOptions{Reason: "INC-7"}); err != nil {
		t.Fatal(err)
	}
	finds("behind", false, " by ada, until it is resumed (INC-7)")
	if err := e.client.Del(t.Context(), e.keys.of(jobs, "ready0")).Err(); err != nil {
		t.Fatal(err)
	}

	// A worker that beats late, and one that is lost and not looked after.
	w, err := e.Register(t.Context(), posthaste.WorkerInfo{Name: "slow", Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	beaten := func(ago time.Duration) {
		t.Helper()
		if err := e.client.ZIncrBy(t.Context(), e.keys.beats(), -float64(ago.Microseconds()), w.String()).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if found := look(); len(found) > 0 {
		t.Errorf("it finds %q", said(found))
	}
	beaten(50 * time.Minute)
	finds("heartbeats", false, "(slow) was 50m")
	beaten(20 * time.Minute)
	finds("workers", false, "(slow) was 1h10m")
	if _, err := e.Maintain(t.Context(), posthaste.UpkeepRescue); err != nil {
		t.Fatal(err)
	}
	if found := look(); len(found) > 0 {
		t.Errorf("after the rescue it finds %q", said(found))
	}
}

// Messages of a kind that no running worker handles are reported after five minutes.
func TestR1_DoctorFindsUnknownKinds(t *testing.T) {
	t.Parallel()
	e := open(t, server.URL())
	k := newKindred(t, e, posthaste.QueueOptions{})
	k.sentAside("sms", "sms", "fax")
	kinds := func() (all []posthaste.Finding) {
		t.Helper()
		found, err := e.Doctor(t.Context())
		k.must(err)
		for _, f := range found {
			if f.Check == "kinds" {
				all = append(all, f)
			}
		}
		return all
	}
	if found := kinds(); len(found) > 0 {
		t.Errorf("at once it finds %+v", found)
	}
	// As if they had been set aside six minutes ago.
	apart := e.keys.of(jobs, "apart")
	members, err := e.client.ZRange(t.Context(), apart, 0, -1).Result()
	k.must(err)
	for _, m := range members {
		at := len(m) - 32
		since, _ := parseMicros(m[at : at+16])
		k.must(e.client.ZRem(t.Context(), apart, m).Err())
		k.must(e.client.ZAdd(t.Context(), apart, goredis.Z{Member: fmt.Sprintf("%s%016d%s", m[:at], since-6*60*1e6, m[at+16:])}).Err())
	}
	k.handles("fax")
	found := kinds()
	if len(found) != 1 || found[0].Fault || found[0].Queue != jobs || found[0].Subscription != "default" || !strings.Contains(found[0].Message, `kind "sms"`) ||
		!strings.Contains(found[0].Message, "(2 of them, the oldest for 6m") || found[0].Hint == "" {
		t.Errorf("it finds %+v", found)
	}
	k.handles("sms")
	if found := kinds(); len(found) > 0 {
		t.Errorf("beside a worker that handles the kind it finds %+v", found)
	}
}

// What takes long to come about, or other clocks.
func TestDoctorOfTimes(t *testing.T) {
	t.Parallel()
	now := time.Now()
	worker := func(id int, version string, age time.Duration) registeredWorker {
		return registeredWorker{lease: time.Minute, WorkerStatus: posthaste.WorkerStatus{ID: posthaste.WorkerID(id), Version: version, StartedAt: now.Add(-age), HeartbeatAt: now}}
	}
	for name, c := range map[string]struct {
		workers []registeredWorker
		finds   string
	}{
		"one version":          {[]registeredWorker{worker(1, "1.0", 2*time.Hour), worker(2, "1.0", 2*time.Hour), worker(3, "", 2*time.Hour)}, ""},
		"a rolling upgrade":    {[]registeredWorker{worker(1, "1.0", 48*time.Hour), worker(2, "1.1", 10*time.Minute)}, ""},
		"one that has stopped": {[]registeredWorker{worker(1, "1.0", 48*time.Hour), worker(2, "1.1", 2*time.Hour), worker(3, "1.1", time.Minute)}, "1.0 (1), 1.1 (2)"},
	} {
		found := doctorWorkers(c.workers, now)
		if len(found) > 1 || (len(found) == 1) != (c.finds != "") || c.finds != "" && (found[0].Check != "workers" || !strings.Contains(found[0].Message, c.finds)) {
			t.Errorf("%s: it finds %q", name, said(found))
		}
	}
	for by, tells := range map[time.Duration]bool{time.Second: false, -time.Second: false, 3 * time.Second: true, -3 * time.Second: true} {
		if found := doctorClock(now, now.Add(time.Millisecond), now.Add(by)); (len(found) == 1) != tells {
			t.Errorf("clocks that differ by %s: it finds %q", by, said(found))
		}
	}
	if found := examined(map[string]string{"aof_enabled": "1", "aof_last_write_status": "err", "maxmemory_policy": "noeviction"}); len(found) != 1 || !found[0].Fault {
		t.Errorf("an append-only file that cannot be written: %q", said(found))
	}
}

// A master of a cluster that has replicas is to ask for some of them.
func TestDoctorWantsReplicasToBeAskedFor(t *testing.T) {
	t.Parallel()
	r := start(t)
	e := open(t, r.URL())
	for _, set := range []string{"0", "1"} {
		if err := e.client.ConfigSet(t.Context(), "min-replicas-to-write", set).Err(); err != nil {
			t.Fatal(err)
		}
		has, err := about(t.Context(), e.client)
		if err != nil {
			t.Fatal(err)
		}
		if found := unguarded(has); len(found) > 0 {
			t.Errorf("a master without replicas cannot require any, and it finds %q", said(found))
		}
		has["connected_slaves"] = "1"
		if found := unguarded(has); (len(found) == 1 && found[0].Check == "replicas" && found[0].Hint != "") != (set == "0") {
			t.Errorf("with min-replicas-to-write %s it finds %q", set, said(found))
		}
	}
}
