//go:build unix

package sidekiq

import (
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/postgres"
)

// onPostgres returns an engine on a new PostgreSQL database, and a client of the jobs' Redis.
func onPostgres(t *testing.T, queues ...string) (posthaste.Store, *goredis.Client) {
	t.Helper()
	return with(t, must[*postgres.Engine](t)(postgres.Open(t.Context(), testpg.New(t))), queues...)
}

// dying sends a dead job like an import that is killed before it settles it.
func dying(t *testing.T, e posthaste.Store, lease time.Duration) {
	t.Helper()
	m := must[posthaste.Message](t)(message(`{"class":"A","args":[],"jid":"1","error_class":"E","error_message":"gone"}`, where{set: "dead"}, 0, false))
	m.Queue = "morgue"
	must[[]posthaste.Sent](t)(e.Send(t.Context(), m))
	r := must[posthaste.ReceiveReply](t)(e.Receive(t.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "morgue"}, Max: 1, Lease: lease}))
	if len(r.Deliveries) != 1 {
		t.Fatalf("received %d", len(r.Deliveries))
	}
}

// Deliveries that a killed run had not settled become dead letters in the next run, even if
// the store's counts are old.
func TestImportBuriesWhatAKilledOneHeld(t *testing.T) {
	t.Parallel()
	e, client := onPostgres(t, "morgue")
	dying(t, e, 2*time.Second)
	r := must[Report](t)(Import(t.Context(), client, e, Options{Namespace: "held", Dead: "morgue"}))
	dead, err := e.DeadLetters(t.Context(), posthaste.DeadLetterFilter{Queue: "morgue"})
	if err != nil || len(dead.Items) != 1 || dead.Items[0].Error != "E: gone" || r.Dead != 1 {
		t.Errorf("%+v; dead letters %+v, %v", r, dead.Items, err)
	}
}

// An import that cannot bury all jobs that it sent reports their number.
func TestImportTellsWhatItCouldNotBury(t *testing.T) {
	t.Parallel()
	e, client := onPostgres(t, "morgue")
	dying(t, e, time.Hour)
	_, err := Import(t.Context(), client, e, Options{Namespace: "unburied", Dead: "morgue", patience: 3 * time.Second})
	if posthaste.CodeOf(err) != posthaste.CodeRefused || !strings.HasPrefix(err.Error(), "1 of the dead jobs") {
		t.Errorf("%v", err)
	}
}

// A queue that is not suitable for dead jobs is rejected before any job is imported.
func TestImportRefusesQueuesForDeadJobs(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pg, client := onPostgres(t, "all")
	onRedis, _ := open(t, "unfit", "all")
	must[int64](t)(client.SAdd(ctx, "unfit:queues", "all").Result())
	must[int64](t)(client.LPush(ctx, "unfit:queue:all", `{"class":"A","args":[],"jid":"1"}`).Result())
	must[int64](t)(client.ZAdd(ctx, "unfit:dead", goredis.Z{Score: 1, Member: `{"class":"A","args":[],"jid":"2"}`}).Result())
	for name, e := range map[string]posthaste.Store{"postgres": pg, "redis": onRedis} {
		for queue, o := range map[string]posthaste.QueueOptions{"once": {Mode: posthaste.AtMostOnce}, "paused": {}, "limited": {Limits: posthaste.QueueLimits{Concurrency: 1}}, "used": {}, "later": {}} {
			if err := e.CreateQueue(ctx, queue, o); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.Pause(ctx, posthaste.OfQueue("paused"), posthaste.PauseOptions{}); err != nil {
			t.Fatal(err)
		}
		must[[]posthaste.Sent](t)(e.Send(ctx, posthaste.Message{Queue: "used", Payload: []byte("1")}, posthaste.Message{Queue: "later", Payload: []byte("1"), SendAt: time.Now().Add(time.Hour)}))
		for queue, why := range map[string]string{"once": "at most once", "paused": "paused", "limited": "limits", "used": "was not a dead job", "later": "was not a dead job", "nowhere": "does not exist"} {
			r, err := Import(ctx, client, e, Options{Namespace: "unfit", Dead: queue})
			if err == nil || !strings.Contains(err.Error(), why) || r.Imported != 0 {
				t.Errorf("%s, %s: %+v, %v", name, queue, r, err)
			}
		}
		if n := must[int64](t)(client.ZCard(ctx, "unfit:dead").Result()) + must[int64](t)(client.LLen(ctx, "unfit:queue:all").Result()); n != 2 {
			t.Errorf("%s: %d jobs are left, want 2", name, n)
		}
	}
}

// Jobs that become the same message are counted separately, in whichever batch they are. A job
// for the dead jobs' queue is rejected. Only jiggler's jobs have an attempt number.
func TestImportCountsDuplicates(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pg, client := onPostgres(t, "all", "morgue")
	onRedis, _ := open(t, "twice", "all", "morgue")
	for name, e := range map[string]posthaste.Store{"twicepg": pg, "twice": onRedis} {
		must[int64](t)(client.SAdd(ctx, name+":queues", "all", "morgue").Result())
		one, none := `{"class":"A","args":[],"jid":"1"}`, `{"class":"A","args":[7]}`
		must[int64](t)(client.LPush(ctx, name+":queue:all", one, none, none, one, `{"class":"A","args":[],"jid":"2","attempt":"1","name":3}`).Result())
		must[int64](t)(client.LPush(ctx, name+":queue:morgue", `{"class":"A","args":[],"jid":"3"}`).Result())
		must[int64](t)(client.ZAdd(ctx, name+":retry", goredis.Z{Score: 1, Member: `{"class":"A","args":[],"jid":"1","queue":"all","retry_count":0}`}).Result())
		r := must[Report](t)(Import(ctx, client, e, Options{Namespace: name, Batch: 3, Dead: "morgue"}))
		if r.Imported != 3 || r.Duplicates != 3 || len(r.Refused) != 1 || r.Refused[0].JID != "3" || r.Pending["queue"] != 1 || r.Pending["retry"] != 0 {
			t.Errorf("%s: %+v", name, r)
		}
		if all, _ := jids(t, e, "all"); len(all) != 3 {
			t.Errorf("%s: %d messages, want 3", name, len(all))
		}
	}
}

// A name of --map that is the queue of no job is reported, and a job whose queue is missing tells
// how to choose another. Jobs to be retried name their queue themselves.
func TestImportReportsWrongMaps(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	e, client := onPostgres(t, "all")
	must[int64](t)(client.SAdd(ctx, "maps:queues", "mail").Result())
	must[int64](t)(client.LPush(ctx, "maps:queue:mail", `{"class":"A","args":[],"jid":"1"}`).Result())
	must[int64](t)(client.ZAdd(ctx, "maps:retry", goredis.Z{Score: 1, Member: `{"class":"A","args":[],"jid":"2","queue":"low"}`}).Result())
	o := Options{Namespace: "maps", Queues: map[string]string{"mial": "all", "mail": "nowhere", "low": "all"}}
	r := must[Report](t)(Import(ctx, client, e, o))
	if !slices.Equal(r.Unmatched, []string{"mial"}) || !slices.Equal(r.Queues, []string{"low", "mail"}) || r.Imported != 1 {
		t.Errorf("%+v", r)
	}
	if len(r.Refused) != 1 || !strings.Contains(r.Refused[0].Error, "posthaste queue create nowhere") || !strings.Contains(r.Refused[0].Error, "--map 'mail=QUEUE'") {
		t.Errorf("the rejected jobs are %+v", r.Refused)
	}
	o.Queues["mail"] = "all"
	if r := must[Report](t)(Import(ctx, client, e, o)); r.Imported != 1 || !slices.Equal(r.Unmatched, []string{"low", "mial"}) {
		t.Errorf("the repetition: %+v", r)
	}
}
