package redis

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/worker"
)

// doomed is the variable that makes the test binary a worker that is going to be killed: "url
// prefix", and "deadly" if a message that it handles kills it.
const doomed = "POSTHASTE_TEST_DOOMED_REDIS_WORKER"

const doomedLease = 2 * time.Second

// runDoomed says how many messages it holds and never ends one.
func runDoomed(where string) error {
	url, prefix, _ := strings.Cut(where, " ")
	prefix, dies := strings.CutSuffix(prefix, " deadly")
	e, err := Open(context.Background(), url, WithPrefix(prefix))
	if err != nil {
		return err
	}
	w := worker.New(e, worker.Config{Lease: doomedLease})
	worker.Handle(w, jobs, func(_ context.Context, d posthaste.Delivery[int]) error {
		fmt.Println("held")
		if dies && d.Payload == deadly {
			os.Exit(3)
		}
		if !dies {
			select {}
		}
		return nil
	})
	return w.Run(context.Background())
}

// The work of a process that is killed runs elsewhere within its lease and 3 s,
// beside 100,000 keys that are not ours, and that of a living one is not taken.
func TestRE2_KilledProcess(t *testing.T) {
	t.Parallel()
	const bound = doomedLease + 3*time.Second
	testrun.Timed(t, doomedLease, func() string {
		took, taken := killedProcess(t)
		switch {
		case taken > 0:
			return fmt.Sprintf("%d deliveries of a living process were taken", taken)
		case took > bound:
			return fmt.Sprintf("the work of a killed process ran elsewhere after %s, want at most %s", took, bound)
		}
		return ""
	})
}

// killedProcess kills a worker's process and returns after how long its work runs
// elsewhere, and how many deliveries of a living worker were taken meanwhile.
func killedProcess(t *testing.T) (took time.Duration, taken int) {
	t.Helper()
	r := start(t)
	e := open(t, r.URL())
	if err := e.client.Do(t.Context(), "debug", "populate", 100_000, "foreign").Err(); err != nil {
		foreign(t, e, 100_000) // where DEBUG is not allowed
	}
	create(t, e, posthaste.QueueOptions{})
	ids := send(t, e, 20)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), doomed+"="+r.URL()+" "+e.keys.prefix)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	lines := bufio.NewScanner(out)
	for range ids {
		if !lines.Scan() {
			t.Fatal("the worker ended")
		}
	}
	// A living worker with the same lease has a message of a queue that the other does
	// not read, for longer than that lease.
	if err := e.CreateQueue(t.Context(), "long", posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	began, end := make(chan posthaste.RawDelivery, 100), make(chan struct{})
	h := work(t, e, worker.Config{Lease: doomedLease}, nil)
	runWorker(t, e, worker.Config{Lease: doomedLease}, func(w *worker.Worker) {
		worker.Handle(w, "long", func(_ context.Context, d posthaste.Delivery[int]) error {
			began <- d.RawDelivery
			<-end
			return nil
		})
	})
	if _, err := e.Send(t.Context(), posthaste.Message{Queue: "long", Payload: 1}); err != nil {
		t.Fatal(err)
	}
	<-began
	holds := time.Now()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	until(t, "its work runs elsewhere", func() bool { return h.all(ids) })
	took = time.Since(killed)
	lasts(time.Until(holds.Add(3 * doomedLease))) // so long does the living one hold its own
	close(end)
	until(t, "all are settled", func() bool {
		infos, err := e.Queues(t.Context(), "long")
		return settledAll(t, e)() && err == nil && infos[0].Subscriptions[0].InFlight+infos[0].Subscriptions[0].Depth == 0
	})
	infos, err := e.Queues(t.Context(), "long")
	if err != nil {
		t.Fatal(err)
	}
	return took, max(len(began), int(infos[0].Subscriptions[0].Lost))
}

// lasts waits in tests of time itself: of work that is held for long, and of idle workers.
func lasts(d time.Duration) { time.Sleep(d) }

func foreign(t *testing.T, e *Engine, n int) {
	t.Helper()
	for from := 0; from < n; from += 1000 {
		var pairs []any
		for i := range 1000 {
			pairs = append(pairs, fmt.Sprint("foreign:", from+i), 1)
		}
		if err := e.client.MSet(t.Context(), pairs...).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// A process has few connections, however many handlers and queues.
func TestRE3_FewConnections(t *testing.T) {
	t.Parallel()
	r := start(t)
	e := open(t, r.URL())
	w := worker.New(e, worker.Config{Concurrency: 500})
	const queues = 20
	done := make(chan struct{}, 100*queues)
	for i := range queues {
		name := fmt.Sprint("queue", i)
		if err := e.CreateQueue(t.Context(), name, posthaste.QueueOptions{}); err != nil {
			t.Fatal(err)
		}
		worker.Handle(w, name, func(context.Context, posthaste.Delivery[int]) error { done <- struct{}{}; return nil })
	}
	testrun.Background(t, w.Run)
	for i := range queues {
		batch := make([]posthaste.Message, 100)
		for n := range batch {
			batch[n] = posthaste.Message{Queue: fmt.Sprint("queue", i), Payload: n}
		}
		if _, err := e.Send(t.Context(), batch...); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 * queues {
		<-done
	}
	clients, err := e.client.ClientList(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	// The client may open one or two more than its pool keeps, when many ask at once.
	const most = connections + 1 + 2
	if n := strings.Count(clients, " name=posthaste "); n < 2 || n > most {
		t.Errorf("%d connections, want at most %d:\n%s", n, most, clients)
	}
}

// startIdle runs a worker of a number of queues and waits until it has nothing to do.
func startIdle(t *testing.T, e *Engine, queues int) (h *handledBy) {
	t.Helper()
	create(t, e, posthaste.QueueOptions{})
	h = work(t, e, worker.Config{}, nil, func(w *worker.Worker) {
		for i := range queues - 1 {
			name := fmt.Sprint("idle", i)
			if err := e.CreateQueue(t.Context(), name, posthaste.QueueOptions{}); err != nil {
				t.Fatal(err)
			}
			worker.Handle(w, name, func(context.Context, posthaste.Delivery[int]) error { return nil })
		}
	})
	ids := send(t, e, 10)
	until(t, "it works", func() bool { return h.all(ids) })
	until(t, "all are settled", settledAll(t, e))
	until(t, "the first samples are taken", func() bool { return e.charted.sampled.Load() != 0 })
	return h
}

// A worker that has nothing to do asks for at most two commands a second, also of many
// queues.
func TestIdle(t *testing.T) {
	t.Parallel()
	r := start(t)
	e := open(t, r.URL())
	h := startIdle(t, e, 20)
	// A short measurement includes commands of the work just done.
	idle, bound := testrun.Size(4*time.Second, 30*time.Second), testrun.Size(4.0, 2.0)
	testrun.Timed(t, idle, func() string {
		before, began := asked(t, e), time.Now()
		lasts(idle)
		n := asked(t, e) - before
		if per := float64(n) / time.Since(began).Seconds(); per > bound {
			return fmt.Sprintf("%d commands in %s, %.1f a second", n, time.Since(began), per)
		}
		return ""
	})
	testrun.Timed(t, lookAnyway/2, func() string {
		began := time.Now()
		ids := send(t, e, 1)
		until(t, "it wakes up", func() bool { return h.all(ids) })
		if took := time.Since(began); took > lookAnyway/2 {
			return fmt.Sprintf("it woke up after %s", took)
		}
		return ""
	})
}

// In a cluster each queue is asked for by itself: at most one command in two seconds for
// each, and two a second whatever their number.
func TestIdleInCluster(t *testing.T) {
	t.Parallel()
	testrun.Nightly(t, "measures for 10 s how little an idle worker does")
	queues, idle := testrun.Size([]int{5}, []int{1, 4, 20, 100}), testrun.Size(10*time.Second, 100*time.Second)
	masters := nodes(t, 3)
	var addresses []string
	for _, m := range masters {
		addresses = append(addresses, m.Address())
	}
	for _, n := range queues {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			client := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: addresses})
			defer client.Close()
			e, err := New(t.Context(), client, WithPrefix(fmt.Sprint("idle", n)))
			if err != nil {
				t.Fatal(err)
			}
			startIdle(t, e, n)
			all := func() (sum int64) {
				for _, m := range masters {
					sum += askedOf(t, m.client)
				}
				return sum
			}
			before, began := all(), time.Now()
			lasts(idle)
			per := float64(all()-before) / time.Since(began).Seconds()
			t.Logf("%d queues: %.2f commands a second", n, per)
			bound := 2 + 0.5*float64(n)
			if idle < time.Minute { // includes commands of the work just done
				bound *= 2
			}
			if per > bound {
				t.Errorf("%d queues: %.2f commands a second, at most %.1f may be", n, per, bound)
			}
		})
	}
}

// asked is how many commands clients have given, scripts' own left out.
func asked(t *testing.T, e *Engine) (n int64) {
	t.Helper()
	return askedOf(t, e.client)
}

func askedOf(t *testing.T, client goredis.Cmdable) int64 {
	t.Helper()
	return callsOf(t, client, "evalsha", "eval", "ping", "subscribe", "hgetall", "info")
}

// callsOf is how many of some commands clients have given, as the statistics name them.
func callsOf(t *testing.T, client goredis.Cmdable, commands ...string) (n int64) {
	t.Helper()
	text, err := client.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		for _, of := range commands {
			var calls int64
			if _, err := fmt.Sscanf(line, "cmdstat_"+of+":calls=%d,", &calls); err == nil {
				n += calls
			}
		}
	}
	return n
}
