package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// TestMain makes the test binary a sending or working process if it is told to.
func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) != "" {
		os.Exit(serve(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

// counting is a sender that only counts.
type counting struct {
	sent atomic.Int64
	err  error
}

func (c *counting) batch(_ context.Context, bodies []body) error {
	c.sent.Add(int64(len(bodies)))
	return c.err
}

func (c *counting) one(context.Context, body) error { c.sent.Add(1); return c.err }

func (c *counting) within(context.Context, pgx.Tx, body) error { return errors.New("not here") }

func (c *counting) close() {}

// Senders of batches pause at the limit until messages are handled, and count all messages
// that they sent.
func TestFlowPausesAtTheLimit(t *testing.T) {
	t.Parallel()
	s := &counting{}
	traffic, err := newTraffic(t.Context(), order{Scenario: flow, Batch: 10, Senders: 2, Limit: 100}, s)
	if err != nil {
		t.Fatal(err)
	}
	sent, err := traffic.run(t.Context(), 20*time.Millisecond)
	if err != nil || sent != 100 || s.sent.Load() != 100 {
		t.Errorf("%d sent without a worker, %d by its count: %v", s.sent.Load(), sent, err)
	}
	traffic.heard(60)
	if sent, err = traffic.run(t.Context(), 20*time.Millisecond); err != nil || sent != 60 {
		t.Errorf("%d sent after 60 were handled: %v", sent, err)
	}
}

func TestFailedSendsEndTheRun(t *testing.T) {
	t.Parallel()
	for _, scenario := range []string{flow, single, latency} {
		s := &counting{err: errors.New("broken")}
		traffic, err := newTraffic(t.Context(), order{Scenario: scenario, Batch: 1, Senders: 2, Limit: 100, Rate: 1000}, s)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := traffic.run(t.Context(), 50*time.Millisecond); err == nil || !strings.Contains(err.Error(), "broken") {
			t.Errorf("%s: %v", scenario, err)
		}
	}
}

// All messages have the same size, whether they contain the time of sending or not.
func TestMessagesHaveOneSize(t *testing.T) {
	t.Parallel()
	c := &cell{peer: posthasteMQ{}, scenario: latency, bench: &bench{}}
	stamped := newBody(c.order(roleSend).Text, 123456789012345)
	for _, b := range []body{payload, stamped} {
		if len(b.json) != payloadBytes {
			t.Errorf("%d bytes: %s", len(b.json), b.json)
		}
	}
	tally := &tally{timed: true}
	tally.encoded(newBody("x", monotonic()-int64(time.Second)).json)
	if got := tally.take(); len(got) != 1 || got[0] < int64(time.Second) || got[0] > int64(time.Minute) || tally.count.Load() != 1 {
		t.Errorf("samples %v of a message that was sent a second ago", got)
	}
}

func TestTablesTellRatiosAndRemarks(t *testing.T) {
	t.Parallel()
	r := &Result{Rounds: 2, DurationSeconds: 1, Missing: map[string]string{"pgque": "no clone"}}
	add := func(scenario, product, row string, round int, rate, server float64, remark string) {
		r.Cells = append(r.Cells, Cell{Scenario: scenario, Product: product, Version: "1", Row: row, Round: round,
			SentPerSecond: known(rate), HandledPerSecond: known(rate), Server: known(server), Client: known(1), Others: known(40), Remark: remark})
	}
	add(flow, posthasteName, only, 1, 100, 10, "")
	add(flow, posthasteName, only, 2, 300, 10, "")
	add(flow, "pgmq", only, 1, 50, 40, "5 of 9 messages were not handled")
	add(transactional, posthasteName, only, 1, 50, 30, "")
	add(transactional, "plain", plainInsert, 1, 100, 12, "")
	add(transactional, "plain", twoInserts, 1, 80, 15, "")
	var text strings.Builder
	if err := printTables(&text, r); err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for line := range strings.Lines(text.String()) {
		if f := strings.Fields(line); len(f) > 2 {
			rows[f[0]] = f
		}
	}
	for _, want := range []string{"pgque has no figures: no clone", "pgmq: round 1: 5 of 9 messages were not handled", "40 %"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the tables lack %q:\n%s", want, text.String())
		}
	}
	// Posthaste's row in the last table, and pgmq's in the first.
	if got := strings.Join(rows["pgmq"], " "); !strings.HasPrefix(got, "pgmq 1 50 50 0.25 40.0 4.00 1.0 3.73 40") {
		t.Errorf("pgmq: %s", got)
	}
	if got := strings.Join(rows[posthasteName], " "); !strings.HasPrefix(got, "posthaste 1 50 50 1.00 0.50 0.62 18.0 30.0 1.00") {
		t.Errorf("posthaste in transactions: %s", got)
	}
}

func TestPercentilesAreNearestRanks(t *testing.T) {
	t.Parallel()
	samples := make([]int64, 100)
	for i := range samples {
		samples[i] = int64(i+1) * 1e6
	}
	for q, want := range map[float64]float64{0.5: 50, 0.99: 99, 1: 100, 0: 1} {
		if got := percentile(samples, q); *got != want {
			t.Errorf("%g: %g, want %g", q, *got, want)
		}
	}
	if percentile(nil, 0.5) != nil {
		t.Error("there is a percentile of nothing")
	}
}

func TestOptionsThatAreWrong(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--products rabbit":  `unknown product "rabbit"; expected one of posthaste, `,
		"--scenarios fast":   `unknown scenario "fast"; expected one of flow, `,
		"--duration 10ms":    "--duration must be 1s to 10m, got 10ms",
		"--rounds 0":         "--rounds must be 1 to 20, got 0",
		"--fill -1":          "--fill must be 0 to 100, got -1",
		"flow":               `unexpected argument "flow"`,
		"--products pgmq,no": `unknown product "no"`,
	} {
		if _, err := parse(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// An unavailable product is reported, and the others are measured.
func TestProductsThatAreMissing(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{"--products", "pgque,posthaste", "--scenarios", "single"})
	if err != nil {
		t.Fatal(err)
	}
	missing := map[string]string{}
	plans := o.plans(t.Context(), &tools{cache: t.TempDir(), say: func(string, ...any) {}}, missing)
	if len(plans) != 2 || !strings.Contains(missing["pgque"], "--pgque") {
		t.Errorf("%v and %v", plans, missing)
	}
}

// The versions in package.json are exact, so that all runs measure the same software.
func TestPackagesAreExact(t *testing.T) {
	t.Parallel()
	b, err := runners.ReadFile("node/package.json")
	if err != nil {
		t.Fatal(err)
	}
	var p struct{ Dependencies map[string]string }
	if err := json.Unmarshal(b, &p); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"graphile-worker", "pg-boss", "pg", "node"} {
		if v := p.Dependencies[name]; v == "" || strings.Trim(v, "0123456789.") != "" {
			t.Errorf("%s is pinned to %q", name, v)
		}
	}
}

// A process answers its orders and reports errors.
func TestProcessesSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"product":"no","role":"send"}`:         `unknown product \"no\"`,
		`{"product":"posthaste","role":"sleep"}`: `unknown role \"sleep\"; expected send or work`,
		`{"product":"pg-boss","role":"send"}`:    "pg-boss does not run in Go",
		`nothing`:                                "the order cannot be read",
	} {
		in, open := io.Pipe()
		go func() { _, _ = io.WriteString(open, text+"\n") }()
		var out strings.Builder
		if code := serve(in, &out); code != 1 || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %d, %s", text, code, out.String())
		}
		_ = open.Close()
	}
}

// The products that are Go modules run, and all messages are handled.
func TestGoProductsRun(t *testing.T) {
	t.Parallel()
	o, err := parse(strings.Fields("--products posthaste,plain,river,watermill-sql --scenarios flow,single,transactional --duration 1s --fill 0"))
	if err != nil {
		t.Fatal(err)
	}
	say := func(format string, args ...any) { t.Logf(format, args...) }
	s, err := openServer(t.Context(), o, say)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	b := &bench{o: o, server: s}
	for _, p := range o.plans(t.Context(), &tools{say: say}, map[string]string{}) {
		c := b.measure(t.Context(), p.peer, p.scenario, p.row, 1)
		t.Log(c.brief())
		// Watermill's worker falls behind single senders.
		behind := c.Product == "watermill-sql" && c.Scenario != flow
		if c.Error != "" || c.Sent == 0 || c.Handled < c.Sent && !behind || c.Server == nil || *c.Server <= 0 || c.Client == nil || *c.Client <= 0 {
			t.Errorf("%s of %s %s: %+v", c.Scenario, c.Product, c.Row, c)
		}
	}
}

func TestOthersAreWhatIsLeft(t *testing.T) {
	t.Parallel()
	busy, err := machineBusy()
	if err != nil || busy <= 0 {
		t.Fatalf("the machine was busy for %g s: %v", busy, err)
	}
	before := usage{server: 1, client: 2, self: 3, machine: 100, elapsed: 50, serverKnown: true}
	after := usage{server: 3, client: 5, self: 4, machine: 111, elapsed: 60, serverKnown: true}
	if got := after.since(before).others(2); got == nil || *got != 25 { // 11 of 20, minus 2, 3 and 1
		t.Errorf("%v %%, want 25", got)
	}
	after.serverKnown = false
	if got := after.since(before).others(2); got != nil {
		t.Errorf("%g %% beside a server whose time is not known", *got)
	}
}

// The last few messages, which wait for a poll, do not affect the rate.
func TestRateIsThatOfNearlyAll(t *testing.T) {
	t.Parallel()
	const second = int64(time.Second)
	marks := []mark{{500, 1 * second}, {1000, 12 * second}, {1495, 15 * second}, {1500, 20 * second}}
	if got := rate(marks, 500, 10*second, 1000); got == nil || *got != 199 {
		t.Errorf("%v a second, want 995 in 5 s", got)
	}
	if got := rate(nil, 0, 0, 0); got != nil {
		t.Errorf("%g a second of nothing", *got)
	}
}
