//go:build unix

package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// shows checks that the table contains words.
func shows(t *testing.T, r *Result, words ...string) {
	t.Helper()
	var shown strings.Builder
	if err := r.Table(&shown); err != nil {
		t.Fatal(err)
	}
	for _, word := range words {
		if !strings.Contains(shown.String(), word) {
			t.Errorf("the table lacks %q:\n%s", word, &shown)
		}
	}
}

func TestBenchTransactional(t *testing.T) {
	t.Parallel()
	r := smoke(t, "transactional", Options{Queues: 3, Workers: 2})
	onlyFsync(t, r)
	trafficFigures(t, r)
	aboveKnown(t, "ratio", r.Ratio)
	if r.SendingResult == nil || r.Connections != singles || r.SentTo != 3 || r.WorkerProcesses != 2 || len(r.Ways) != 8 {
		t.Fatalf("%+v", r.SendingResult)
	}
	for i, w := range r.Ways {
		above(t, w.Way+", per second", w.PerSecond)
		if i != 1 {
			aboveKnown(t, w.Way+", of two rows", w.RatioToPayloads)
		}
		if i != 0 {
			aboveKnown(t, w.Way+", of one", w.RatioToRow)
		}
		attendedFigures(t, w)
	}
	shows(t, r, "row and send, postgres.In without a worker", "of two rows", "3 queues, as fast as goes; worker processes: 2")
}

// attendedFigures checks the figures that a way has only if workers handle its messages.
func attendedFigures(t *testing.T, w SendingWay) {
	t.Helper()
	of := w.Worker == attended
	if runtime.GOOS == "linux" && w.ServerCPU == nil || len(w.Rounds) == 0 || of != (w.Handled != nil) || of != (w.WorkerCPU != nil) || w.HTTP != (w.HTTPServerCPU != nil) {
		t.Errorf("%+v", w)
	}
	if w.RatioToNobody != nil && !of {
		t.Errorf("%s %s is compared with itself", w.Way, w.Worker)
	}
}

func TestBenchSenders(t *testing.T) {
	t.Parallel()
	r := smoke(t, "senders", Options{Queues: 2, Batch: 10})
	onlyFsync(t, r)
	trafficFigures(t, r)
	if len(r.Ways) != 9 || r.ArrayOf != 10 || r.WorkerProcesses != 1 {
		t.Fatalf("%+v", r.SendingResult)
	}
	for i, w := range r.Ways {
		above(t, w.Way+", per second", w.PerSecond)
		attendedFigures(t, w)
		if i > 0 {
			aboveKnown(t, w.Way+", of plain", w.RatioToPlain)
		}
		if w.HTTP {
			aboveKnown(t, w.Way+", of Engine.Send", w.RatioToEngine)
		}
		if array := strings.Contains(w.Way, "arrays"); array && w.Messages%10 != 0 {
			t.Errorf("%d messages of arrays of 10", w.Messages)
		}
	}
	if main := r.Ways[3]; main.Way != byHTTP || main.Worker != attended || *r.PerSecond != main.PerSecond {
		t.Errorf("the result is that of %s %s", main.Way, main.Worker)
	}
	shows(t, r, "HTTP, arrays of 10 without a worker", "of plain", "HTTP server", "workers")
}

// A way over HTTP sends one request of the API.
func TestPostRequest(t *testing.T) {
	t.Parallel()
	for messages, want := range map[int]int{1: 1, 3: 3} {
		request, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(postRequest("127.0.0.1:1", "orders", messages))))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(request.Body)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(string(body), `"payload":`+string(payload)); got != want || !strings.HasPrefix(request.URL.Path, "/v1/queues/orders/messages") || json.Valid(body) == false || strings.HasSuffix(request.URL.Path, "/batch") != (messages > 1) {
			t.Errorf("%d messages: %s %s", messages, request.URL, body)
		}
	}
}

// An error response of the server ends the run, and is its error.
func TestPostsSayWhatTheServerAnswered(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/queues/good/messages" {
			http.Error(w, "unknown queue", http.StatusNotFound)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}))
	defer server.Close()
	address := server.Listener.Addr().String()
	p := newPosts(t.Context(), address)
	defer p.close()
	for range 2 { // on one connection
		if err := p.post(postRequest(address, "good", 1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.post(postRequest(address, "bad", 1)); err == nil || !strings.Contains(err.Error(), "unknown queue") {
		t.Errorf("got %v", err)
	}
}

// Medians are taken over the rounds. The median of a ratio is taken over the ratios of each round.
func TestWaysAreSummedUp(t *testing.T) {
	t.Parallel()
	laps := func(rates ...float64) (laps []sendingLap) {
		for _, r := range rates {
			laps = append(laps, sendingLap{perSecond: r, handled: r / 2, server: known(10), workers: known(1), http: known(2), contended: contended{notified: 3, took: time.Second, active: 10, waiting: 1}})
		}
		return laps
	}
	plainly := &sendWay{laps: laps(100, 10, 1000)}
	own := &sendWay{SendingWay: SendingWay{Worker: attended}, laps: laps(50, 5, 250), plain: plainly}
	own.own = own
	own.sumUp()
	if own.PerSecond != 50 || *own.RatioToPlain != 0.5 || own.RatioToEngine != nil || own.RatioToRow != nil || *own.Handled != 25 || *own.WorkerCPU != 1 || own.HTTPServerCPU != nil {
		t.Errorf("%+v", own.SendingWay)
	}
	if own.Notifications != 3 || *own.LockWaits != 0.1 || own.Sampled != 30 {
		t.Errorf("%+v", own.SendingWay)
	}
	if array := (&sendWay{SendingWay: SendingWay{PerSecond: 20_000}, messages: 100}); own.dense() || array.dense() || !(&sendWay{SendingWay: SendingWay{PerSecond: 201}}).dense() {
		t.Error("ways that are dense")
	}
	if plainly.sumUp(); plainly.Handled != nil || plainly.WorkerCPU != nil || plainly.RatioToPlain != nil {
		t.Errorf("%+v", plainly.SendingWay)
	}
	var lap sendingLap
	usage{server: 3 * time.Second, client: time.Second, workers: 2 * time.Second, known: true}.per(1_000_000, usage{server: time.Second, known: true}, &lap)
	if *lap.server != 2 || *lap.client != 1 || *lap.workers != 2 || *lap.http != 0 {
		t.Errorf("%+v", lap)
	}
}

// At a low rate the worker sleeps between messages, and each message wakes it.
func TestBenchTransactionalCountsNotifications(t *testing.T) {
	t.Parallel()
	var rang, sampled bool
	// A busy machine may be late for its turns.
	for during := 4 * time.Second; !(rang && sampled) && during < time.Minute; during *= 3 {
		r := smoke(t, "transactional", Options{Rate: 40, Duration: during})
		onlyFsync(t, r)
		for _, w := range r.Ways {
			rang = rang || w.Worker == attended && (w.Notifications > 0 || slices.Max(w.AtOnset) > 0)
			sampled = sampled || w.Sampled > 0
			if w.PerSecond > 60 {
				t.Errorf("%s %s made %g/s, and 40 were asked for", w.Way, w.Worker, w.PerSecond)
			}
			if w.Worker != attended && w.Notifications > 5 {
				t.Errorf("%s %s rang %g times a second, although no worker slept", w.Way, w.Worker, w.Notifications)
			}
		}
	}
	if !rang || !sampled {
		t.Errorf("notifications were counted: %t, and senders seen at work: %t", rang, sampled)
	}
}

func TestBenchSteady(t *testing.T) {
	t.Parallel()
	r := smoke(t, "flow", Options{Steady: true, Batch: 100})
	trafficFigures(t, r)
	all, after := r.Claims, r.AfterTruncation
	above(t, "p50", all.P50)
	if all.Claims == 0 || all.P50 > all.P99 || all.P99 > all.Max || after.Claims > all.Claims || after.Max > all.Max || len(r.WorstOfEach) != r.Truncations {
		t.Errorf("%+v", r.SteadyResult)
	}
	// Upkeep runs once a second, and truncates a slot in about the third round.
	if (r.Truncations == 0) != strings.Contains(r.Reason, "no slot was truncated") {
		t.Errorf("%d truncations: %s", r.Truncations, r.Reason)
	}
	shows(t, r, "truncations", "within 200 ms of a truncation")
}

// Upkeep truncates a slot of a full ring, and the round in which it does is recorded.
func TestTruncationsAreSeen(t *testing.T) {
	t.Parallel()
	o := Options{DatabaseURL: testpg.Superuser(t), Batch: 100, drain: patient, Duration: time.Second}
	o.setDefaults("flow")
	ctx := t.Context()
	r := &run{o: o, result: &Result{}, during: o.Duration, until: time.Now().Add(patient)}
	var err error
	if r.server, err = openServer(ctx, r); err != nil {
		t.Fatal(err)
	}
	defer r.clearUp(ctx, r.server)
	url, err := r.server.database(ctx, "truncated")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	traffic, timed, err := timedTraffic(ctx, r, url)
	if err != nil {
		t.Fatal(err)
	}
	defer timed.conn.Close(context.Background())
	err = fillRing(ctx, r, traffic, conn)
	before, e := clearedSlots(ctx, conn)
	err = errors.Join(err, e)
	// The flow continues: senders and the worker open the next slots.
	for begun := time.Now(); err == nil && len(timed.result().WorstOfEach) == 0 && time.Since(begun) < patient; {
		if _, err = traffic.batches(ctx, time.Millisecond, 100, outstanding(100), false); err == nil {
			_, err = timed.Maintain(ctx, posthaste.UpkeepSpace)
		}
	}
	if err := errors.Join(err, timed.failure(), traffic.stop()); err != nil {
		t.Fatal(err)
	}
	result := timed.result()
	if result.Truncations == 0 || result.Claims.Claims == 0 || result.LiveSlots != steadySlots {
		var kept string
		err := conn.QueryRow(ctx, `select format('live slots: %s; the oldest: %s; prepared: %s; settings: %s', (select count(*) from posthaste.slots where live),
			(select string_agg(o::text, ', ') from posthaste.oldest_slot() o), (select string_agg(gid, ', ') from pg_prepared_xacts), (select x::text from posthaste.settings x))`).Scan(&kept)
		t.Fatalf("%+v; %s, %v", result, kept, err)
	}
	// A slot that was truncated may be in use again.
	if after, err := clearedSlots(ctx, conn); err != nil || slices.Equal(before, after) {
		t.Errorf("%d truncations were seen, and the slots were cleared up to %v before and %v after: %v", result.Truncations, before, after, err)
	}
	timed.forget()
	if result := timed.result(); result.Truncations+result.Claims.Claims != 0 {
		t.Errorf("the earlier spans are not dropped: %+v", result)
	}
}

// clearedSlots returns the last position that was truncated in each slot.
func clearedSlots(ctx context.Context, conn *pgx.Conn) (to []int64, err error) {
	err = conn.QueryRow(ctx, "select array_agg(cleared_to order by slot) from posthaste.slots").Scan(&to)
	return to, err
}

func TestClaimsNearATruncation(t *testing.T) {
	t.Parallel()
	ms := func(begun, ended int) span {
		return span{time.Duration(begun) * time.Millisecond, time.Duration(ended) * time.Millisecond}
	}
	rounds := []span{ms(1000, 1060)}
	for claim, near := range map[span]bool{
		ms(900, 999):   false,
		ms(900, 1030):  true, // waits for the lock
		ms(1100, 1101): true,
		ms(1260, 1300): true,
		ms(1261, 1300): false,
	} {
		if claim.near(rounds) != near {
			t.Errorf("%v near %v is %t", claim, rounds, !near)
		}
	}
}

func TestBenchPinnedKeyed(t *testing.T) {
	t.Parallel()
	for kind := range keyedQueues {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := smoke(t, "pinned", Options{Keyed: kind, Batch: 20})
			onlyFsync(t, r)
			trafficFigures(t, r)
			if r.Subscriptions != pinnedSubscriptions || r.PinnedKeys != pinnedKeys || r.Keyed != kind || len(r.Sixths) != 6 {
				t.Errorf("%+v", r.PinnedResult)
			}
			if !slices.ContainsFunc(r.Grown, func(g TableGrowth) bool { return g.Table == "entries_other" && g.GrownBytes > 0 }) {
				t.Errorf("what grew: %+v", r.Grown)
			}
			shows(t, r, "3 subscriptions", "("+kind+")", "entries_other grew by")
		})
	}
}

func TestTablesThatGrew(t *testing.T) {
	t.Parallel()
	before := []TableGrowth{{Table: "keys", Bytes: 100, IndexBytes: 50, Updates: 7}, {Table: "counters", Bytes: 10}, {Table: "slots", Bytes: 8}}
	after := []TableGrowth{{Table: "keys", Bytes: 300, IndexBytes: 60, Updates: 17, DeadRows: 4}, {Table: "counters", Bytes: 1000}, {Table: "slots", Bytes: 8}}
	got := grown(before, after)
	if len(got) != 2 || got[0].Table != "counters" || got[1].GrownBytes != 210 || got[1].Updates != 10 || got[1].DeadRows != 4 {
		t.Errorf("%+v", got)
	}
}

// A session's application name must be exact, because senders are found by it.
func TestNamedSessions(t *testing.T) {
	t.Parallel()
	for at, want := range map[string]string{
		"postgres://u:p%40@h:1/x?sslmode=require": "postgres://u:p%40@h:1/x?application_name=bench-senders&sslmode=require",
		"host=h dbname=x":                         "host=h dbname=x application_name='bench-senders'",
	} {
		if got, err := withApplicationName(at, "bench-senders"); err != nil || got != want {
			t.Errorf("%s: %s, %v", at, got, err)
		}
	}
}
