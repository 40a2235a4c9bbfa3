//go:build unix

package sidekiq

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/postgres"
	"github.com/posthaste-mq/posthaste/redis"
)

// doomed makes the test binary an import that will be killed; its value is the address of the
// Redis with the jobs. doomedTo is the target, and doomedFrom the namespace.
const (
	doomed     = "POSTHASTE_TEST_DOOMED_IMPORT"
	doomedTo   = "POSTHASTE_TEST_DOOMED_TO"
	doomedFrom = "POSTHASTE_TEST_DOOMED_FROM"
)

var server *devbroker.Redis

func TestMain(m *testing.M) {
	if url := os.Getenv(doomed); url != "" {
		if err := importOnce(url, os.Getenv(doomedTo), os.Getenv(doomedFrom)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	devbroker.Main(m, &server, func(ctx context.Context, dir string) (*devbroker.Redis, error) {
		return devbroker.StartRedis(ctx, dir)
	})
}

const prefix = "killed"

// importOnce imports the doomed import's jobs from database 1 of a Redis.
func importOnce(url, to, namespace string) error {
	ctx := context.Background()
	e, err := connect(ctx, to)
	if err != nil {
		return err
	}
	defer e.Close()
	o, err := goredis.ParseURL(url + "/1")
	if err != nil {
		return err
	}
	client := goredis.NewClient(o)
	defer client.Close()
	r, err := Import(ctx, client, e, Options{Namespace: namespace, Batch: 3, Queues: map[string]string{"default": "jobs", "mailers": "mail"}, Dead: "morgue"})
	if err == nil && len(r.Refused) > 0 {
		err = fmt.Errorf("refused: %+v", r.Refused)
	}
	return err
}

// connect opens the engine at a URL, a Redis or a PostgreSQL.
func connect(ctx context.Context, url string) (posthaste.Store, error) {
	if strings.HasPrefix(url, "redis:") {
		return redis.Open(ctx, url, redis.WithPrefix(prefix))
	}
	return postgres.Open(ctx, url)
}

func open(t *testing.T, prefix string, queues ...string) (posthaste.Store, *goredis.Client) {
	t.Helper()
	e, err := redis.Open(t.Context(), server.URL(), redis.WithPrefix(prefix))
	if err != nil {
		t.Fatal(err)
	}
	return with(t, e, queues...)
}

// with creates queues and a client of the jobs' Redis.
func with(t *testing.T, e posthaste.Store, queues ...string) (posthaste.Store, *goredis.Client) {
	t.Helper()
	t.Cleanup(e.Close)
	for _, q := range queues {
		if err := e.CreateQueue(t.Context(), q, posthaste.QueueOptions{MaxPayload: 1000}); err != nil {
			t.Fatal(err)
		}
	}
	client := goredis.NewClient(&goredis.Options{Addr: server.Address(), DB: 1})
	t.Cleanup(func() { client.Close() })
	return e, client
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// jids returns the jids of a queue's messages, in order, and how often each came.
func jids(t *testing.T, e posthaste.Store, queue string) (all []string, times map[string]int) {
	t.Helper()
	times = map[string]int{}
	for before := posthaste.MessageID(0); ; {
		some, err := e.Messages(t.Context(), posthaste.MessageFilter{Queue: queue, Before: before, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range some.Items {
			all = append(all, m.Headers["jid"])
			times[m.Headers["jid"]]++
		}
		if len(some.Items) < 1000 {
			return all, times
		}
		before = some.Items[len(some.Items)-1].ID
	}
}

// An import that is killed repeatedly, at night at 20 random points, imports every job once, and
// loses none.
func TestKilledImportTakesEveryJobOnce(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]func(*testing.T) string{
		"redis":    func(*testing.T) string { return server.URL() },
		"postgres": func(t *testing.T) string { return testpg.New(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			killedImport(t, name, url(t))
		})
	}
}

func killedImport(t *testing.T, namespace, url string) {
	e, err := connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	e, client := with(t, e, "jobs", "mail", "morgue")
	ctx := t.Context()
	n, killed := 300, 5
	if testrun.Night() {
		n, killed = 3000, 20
	}
	p := client.Pipeline()
	p.SAdd(ctx, namespace+":queues", "default", "mailers")
	for i := range n {
		jid := fmt.Sprintf("%024x", i)
		now := fmt.Sprintf("%d.%06d", time.Now().Unix(), i)
		// As Sidekiq 7 writes them.
		p.LPush(ctx, namespace+":queue:default", `{"retry":true,"queue":"default","class":"HardJob","args":["bob",`+strconv.Itoa(i)+`],"jid":"a`+jid+`","created_at":`+now+`,"enqueued_at":`+now+`}`)
		p.LPush(ctx, namespace+":queue:mailers", `{"retry":true,"queue":"mailers","class":"ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper","wrapped":"ActionMailer::MailDeliveryJob","args":[{"job_class":"ActionMailer::MailDeliveryJob","arguments":["UserMailer","welcome"]}],"jid":"b`+jid+`","created_at":`+now+`}`)
		later := float64(time.Now().Add(time.Hour).Unix()) + 0.25
		p.ZAdd(ctx, namespace+":schedule", goredis.Z{Score: later, Member: `{"retry":true,"queue":"default","class":"LaterJob","args":[],"jid":"c` + jid + `","created_at":` + now + `}`})
		p.ZAdd(ctx, namespace+":retry", goredis.Z{Score: later, Member: `{"retry":true,"queue":"default","class":"HardJob","args":[1],"jid":"d` + jid + `","created_at":` + now + `,"enqueued_at":` + now + `,"error_message":"it broke","error_class":"RuntimeError","failed_at":` + now + `,"retry_count":3}`})
		if i%10 == 0 {
			p.ZAdd(ctx, namespace+":dead", goredis.Z{Score: later, Member: `{"retry":5,"queue":"mailers","class":"HardJob","args":[2],"jid":"e` + jid + `","created_at":` + now + `,"error_message":"it broke for good","error_class":"RuntimeError","retry_count":5}`})
		}
	}
	must[[]goredis.Cmder](t)(p.Exec(ctx))
	exe := must[string](t)(os.Executable())
	left := func() (n int64) {
		for _, q := range []string{"default", "mailers"} {
			n += must[int64](t)(client.LLen(ctx, namespace+":queue:"+q).Result())
		}
		for _, set := range []string{"schedule", "retry", "dead"} {
			n += must[int64](t)(client.ZCard(ctx, namespace+":"+set).Result())
		}
		return n
	}
	for kills := 0; ; kills++ {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), doomed+"="+server.URL(), doomedTo+"="+url, doomedFrom+"="+namespace)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		before := left()
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		if kills < killed {
			testrun.Until(t, time.Minute, "it takes some", func() bool { return left() != before || len(ended) > 0 })
			testrun.Pause(rand.N(30 * time.Millisecond))
			_ = cmd.Process.Kill()
			if err := <-ended; err != nil {
				continue
			}
			if kills == 0 {
				t.Fatal("all jobs were imported before it was killed")
			}
			break
		}
		if err := <-ended; err != nil {
			t.Fatalf("the last run: %v\n%s", err, &stderr)
		}
		break
	}
	if n := left(); n != 0 {
		t.Errorf("%d jobs are left", n)
	}
	for queue, want := range map[string]int{"jobs": 3 * n, "mail": n, "morgue": n / 10} {
		all, times := jids(t, e, queue)
		if len(all) != want || len(times) != want {
			t.Errorf("%s has %d messages of %d jobs, want %d", queue, len(all), len(times), want)
		}
	}
	dead, err := e.DeadLetters(ctx, posthaste.DeadLetterFilter{Queue: "morgue", Limit: 1000})
	if err != nil || len(dead.Items) != n/10 || dead.Items[0].Error != "RuntimeError: it broke for good" || dead.Items[0].Headers["import-queue"] != "mailers" {
		t.Errorf("%d dead letters: %+v, %v", len(dead.Items), dead.Items, err)
	}
	reply := must[posthaste.ReceiveReply](t)(e.Receive(ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "jobs"}, Max: 1, Lease: time.Minute}))
	if len(reply.Deliveries) != 1 || string(reply.Deliveries[0].Payload) != `["bob",0]` || reply.Deliveries[0].Kind != "HardJob" {
		t.Errorf("the oldest job is %+v", reply.Deliveries)
	}
	mail := must[posthaste.ReceiveReply](t)(e.Receive(ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "mail"}, Max: 1, Lease: time.Minute}))
	if len(mail.Deliveries) != 1 || mail.Deliveries[0].Kind != "ActionMailer::MailDeliveryJob" {
		t.Errorf("the oldest mail is %+v", mail.Deliveries)
	}
	found, err := e.Messages(ctx, posthaste.MessageFilter{Queue: "jobs", Reference: "d" + fmt.Sprintf("%024x", 7)})
	if err != nil || len(found.Items) != 1 || found.Items[0].Headers["retry-count"] != "3" || found.Items[0].Headers["error"] != "RuntimeError: it broke" ||
		found.Items[0].Subscriptions[0].State != posthaste.StateScheduled || time.Until(found.Items[0].Subscriptions[0].DueAt) < 30*time.Minute {
		t.Errorf("a retry is %+v, %v", found.Items, err)
	}
}

// Jobs that become no messages stay, are reported, and do not block others. --keep removes
// nothing, and no job is imported twice.
func TestImportRefusesAndKeeps(t *testing.T) {
	t.Parallel()
	e, client := open(t, "kept", "all")
	ctx := t.Context()
	must[int64](t)(client.SAdd(ctx, "kept:queues", "Big One").Result())
	for i, text := range []string{`{"class":"A","args":[1],"jid":"1"}`, `no job`, `{"class":"A","args":["` + strings.Repeat("x", 2000) + `"],"jid":"2"}`, `{"class":"A","args":[],"jid":"3"}`, `{"args":[],"jid":"4"}`, `{"class":"B","args":[5]}`} {
		must[int64](t)(client.LPush(ctx, "kept:queue:Big One", text).Result())
		must[int64](t)(client.ZAdd(ctx, "kept:schedule", goredis.Z{Score: float64(i), Member: `{"class":"S","args":[],"jid":"s` + strconv.Itoa(i) + `"}`}).Result())
	}
	o := Options{Namespace: "kept", Queue: "all", Batch: 2, Keep: true, DryRun: true}
	r := must[Report](t)(Import(ctx, client, e, o))
	if r.Imported != 0 || r.Pending["queue"] != 6 || r.Pending["schedule"] != 6 {
		t.Errorf("a dry run: %+v", r)
	}
	o.DryRun = false
	for range 2 {
		if r = must[Report](t)(Import(ctx, client, e, o)); r.Imported != 9 || len(r.Refused) != 3 || r.Pending["queue"] != 6 {
			t.Errorf("kept: %+v", r)
		}
	}
	o.Keep = false
	if r = must[Report](t)(Import(ctx, client, e, o)); r.Imported != 9 || len(r.Refused) != 3 || r.Pending["queue"] != 3 || r.Pending["schedule"] != 0 {
		t.Errorf("taken: %+v", r)
	}
	if all, _ := jids(t, e, "all"); len(all) != 9 {
		t.Errorf("%d messages, want 9", len(all))
	}
	o.Queue = "missing-s"
	if r = must[Report](t)(Import(ctx, client, e, o)); r.Imported != 0 || len(r.Refused) != 3 {
		t.Errorf("to a queue that is not there: %+v", r)
	}
}

// jiggler's keys and jobs.
func TestImportJiggler(t *testing.T) {
	t.Parallel()
	e, client := open(t, "jiggler", "default", "mail")
	ctx := t.Context()
	job := func(jid string) string {
		b, err := json.Marshal(map[string]any{"name": "MyJob", "args": []int{1, 2}, "retries": 3, "jid": jid, "queue": "mail", "attempt": 2})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	must[int64](t)(client.LPush(ctx, "jiggler:list:default", job("1"), job("2")).Result())
	must[int64](t)(client.LPush(ctx, "jiggler:list:mail:in_progress:8a7f", job("3")).Result())
	must[int64](t)(client.ZAdd(ctx, "jiggler:set:retries", goredis.Z{Score: 1, Member: job("4")}).Result())
	must[int64](t)(client.ZAdd(ctx, "jiggler:set:dead", goredis.Z{Score: 1, Member: job("5")}).Result())
	r := must[Report](t)(Import(ctx, client, e, Options{Layout: "jiggler"}))
	if r.Imported != 4 || r.Pending["dead"] != 1 || r.Pending["queue"] != 0 || r.Pending["retry"] != 0 {
		t.Errorf("taken: %+v", r)
	}
	for queue, want := range map[string]string{"default": "2 1", "mail": "4 3"} {
		if all, _ := jids(t, e, queue); strings.Join(all, " ") != want {
			t.Errorf("%s has %v, want %s", queue, all, want)
		}
	}
	found, err := e.Messages(ctx, posthaste.MessageFilter{Reference: "4"})
	if err != nil || len(found.Items) != 1 || found.Items[0].Kind != "MyJob" || found.Items[0].Headers["retry-count"] != "2" {
		t.Errorf("a retry is %+v, %v", found.Items, err)
	}
}
