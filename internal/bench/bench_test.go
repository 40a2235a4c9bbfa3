package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testpg"
)

func TestOptionsAreRefusedByName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		scenario string
		options  Options
		code     posthaste.Code
		fields   []string
	}{
		{"flight", Options{}, posthaste.CodeInvalid, []string{`"flight"`, "expected one of flow, single, latency"}},
		{"", Options{}, posthaste.CodeInvalid, []string{"unknown bench scenario"}},
		{"relay", Options{QueueType: "stream"}, posthaste.CodeInvalid, []string{"queue type", "quorum"}},
		{"redis", Options{DatabaseURL: "postgres://x/y"}, posthaste.CodeInvalid, []string{"measures on Redis"}},
		{"flow", Options{RedisURL: "redis://x"}, posthaste.CodeInvalid, []string{"measures on PostgreSQL"}},
		{"flow", Options{Engine: "mysql"}, posthaste.CodeInvalid, []string{"postgres or redis"}},
		{"pinned", Options{Engine: "redis"}, posthaste.CodeInvalid, []string{"bench pinned runs on PostgreSQL only", "flow, single, latency, senders, ordered, kinds, redis, idle"}},
		{"redis", Options{Engine: "postgres"}, posthaste.CodeInvalid, []string{"bench redis runs on Redis only"}},
		{"pinned", Options{Steady: true}, posthaste.CodeInvalid, []string{"only bench flow has a steady form, not pinned"}},
		{"flow", Options{Steady: true, Engine: "redis"}, posthaste.CodeInvalid, []string{"only PostgreSQL has slots", "excludes engine redis"}},
		{"pinned", Options{Keyed: "yes"}, posthaste.CodeInvalid, []string{"keyed must be limits or ordered, got"}},
		{"flow", Options{Keyed: "limits"}, posthaste.CodeInvalid, []string{"only bench pinned has a keyed form, not flow"}},
		{"single", Options{Queues: 20}, posthaste.CodeInvalid, []string{"only bench transactional and senders take a number of queues, not single"}},
		{"senders", Options{Queues: 1001, Workers: 9}, posthaste.CodeInvalid, []string{"queues must be 1 to 1000", "workers must be 1 to 8, got 9"}},
		{"single", Options{Workers: 2}, posthaste.CodeInvalid, []string{"only bench transactional and senders take a number of worker processes, not single"}},
		{"transactional", Options{Queues: 1001}, posthaste.CodeInvalid, []string{"queues must be 1 to 1000, got 1001"}},
		{"transactional", Options{Engine: "redis"}, posthaste.CodeInvalid, []string{"bench transactional runs on PostgreSQL only"}},
		{"latency", Options{Engine: "redis", OpenSender: true}, posthaste.CodeInvalid, []string{"transaction"}},
		{"latency", Options{Engine: "redis", DatabaseURL: "postgres://x/y"}, posthaste.CodeInvalid, []string{"measures on Redis"}},
		{"nats", Options{Engine: "redis"}, posthaste.CodeInvalid, []string{"bench nats runs on NATS only"}},
		{"nats", Options{DatabaseURL: "postgres://x/y"}, posthaste.CodeInvalid, []string{"measures on NATS"}},
		{"nats", Options{Way: "slowly", Servers: 2}, posthaste.CodeInvalid, []string{"singly, gathered", "slowly", "servers must be 1 or 3, got 2"}},
		{"nats", Options{NATSURL: "nats://x", Servers: 3, DataDir: "x"}, posthaste.CodeInvalid, []string{"excludes the number of servers", "excludes the data directory"}},
		{"flow", Options{NATSURL: "nats://x", Servers: 3, Way: "singly"}, posthaste.CodeInvalid, []string{"does not measure on NATS", "only bench nats takes a number of servers", "only bench nats takes a way"}},
		{"nats", Options{NATSURL: "nats://:geheim@127.0.0.1:1"}, posthaste.CodeUnavailable, nil},
		{"redis", Options{RedisURL: "redis://:geheim@%zz"}, posthaste.CodeInvalid, []string{"not the URL of a Redis server"}},
		{"relay", Options{Broker: "mqtt://a:geheim@b"}, posthaste.CodeInvalid, []string{"broker", "kafka://"}},
		{"relay", Options{Broker: "kafka", QueueType: "quorum"}, posthaste.CodeInvalid, []string{"types of queues", "Kafka"}},
		{"pipeline", Options{Broker: "redis://localhost"}, posthaste.CodeInvalid, []string{"amqp://"}},
		{"pipeline", Options{Handler: time.Minute, Consumers: 99}, posthaste.CodeInvalid, []string{"handler", "consumers"}},
		{"flow", Options{Duration: time.Millisecond, Batch: -1}, posthaste.CodeInvalid, []string{"duration", "batch"}},
		{"flow", Options{Duration: 2 * time.Hour}, posthaste.CodeInvalid, []string{"duration"}},
		{"backlog", Options{Waiting: 10_000_001}, posthaste.CodeInvalid, []string{"waiting"}},
		{"latency", Options{Rate: -3}, posthaste.CodeInvalid, []string{"rate"}},
		{"flow", Options{DatabaseURL: "postgres://x/y", DataDir: "/z"}, posthaste.CodeInvalid, []string{"excludes"}},
		{"flow", Options{DatabaseURL: "postgres://%zz:geheim@/"}, posthaste.CodeInvalid, []string{"database URL"}},
	} {
		_, err := Run(t.Context(), c.scenario, c.options)
		if posthaste.CodeOf(err) != c.code {
			t.Errorf("%s %+v: %v, wanted code %s", c.scenario, c.options, err, c.code)
			continue
		}
		for _, field := range c.fields {
			if !strings.Contains(err.Error(), field) {
				t.Errorf("%s %+v: %q does not name %s", c.scenario, c.options, err, field)
			}
		}
		if strings.Contains(err.Error(), "geheim") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
}

// Each scenario has a description and a function.
func TestScenariosHaveFunctions(t *testing.T) {
	t.Parallel()
	for _, name := range Scenarios() {
		if runs[name] == nil || Describe(name) == "" {
			t.Errorf("scenario %s lacks its function or its description", name)
		}
	}
	if len(runs) != len(scenarios) {
		t.Errorf("%d functions for %d scenarios", len(runs), len(scenarios))
	}
}

// A broker that is not installed on this machine is unavailable, and the error says how to install it.
// Not in parallel, because the path is that of the process.
func TestNoBrokerIsUnavailable(t *testing.T) {
	t.Setenv("PATH", "")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for broker, word := range map[string]string{"redis": "apt-get install redis-server", "kafka": "Java", "nats": "go install github.com/nats-io/nats-server/v2@v"} {
		o := Options{Broker: broker, DatabaseURL: testpg.Superuser(t), Duration: time.Second}
		_, err := Run(t.Context(), "relay", o)
		if posthaste.CodeOf(err) != posthaste.CodeUnavailable || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", broker, err)
		}
	}
}

func TestNoServerIsUnavailable(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	l.Close()
	_, err = Run(t.Context(), "flow", Options{DatabaseURL: "postgres://user:geheim@" + at + "/x?sslmode=disable"})
	if posthaste.CodeOf(err) != posthaste.CodeUnavailable || strings.Contains(err.Error(), "geheim") {
		t.Errorf("got %v", err)
	}
}

func TestFigures(t *testing.T) {
	t.Parallel()
	if m := median([]float64{3, 1, 2}); m != 2 {
		t.Errorf("median %g", m)
	}
	if m := median([]float64{4, 1, 2, 3}); m != 2.5 {
		t.Errorf("median %g", m)
	}
	if median(nil) != 0 || percentile(nil, 0.5) != 0 || quotient(1, 0) != nil || rate(5, 0) != 0 {
		t.Error("figures of nothing")
	}
	samples := make([]time.Duration, 200)
	for i := range samples {
		samples[i] = time.Duration(i + 1)
	}
	for q, want := range map[float64]time.Duration{0.5: 100, 0.95: 190, 0.99: 198, 1: 200} {
		if got := percentile(samples, q); got != want {
			t.Errorf("percentile %g: %d, wanted %d", q, got, want)
		}
	}
	for v, want := range map[float64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234"} {
		if got := grouped(v); got != want {
			t.Errorf("%g: %s", v, got)
		}
	}
}

func TestDurability(t *testing.T) {
	t.Parallel()
	if got := notDurable(map[string]string{"fsync": "on", "synchronous_commit": "local"}); len(got) != 0 {
		t.Errorf("durable settings: %v", got)
	}
	got := notDurable(map[string]string{"fsync": "off", "synchronous_commit": "off"})
	if strings.Join(got, " ") != "fsync synchronous_commit" {
		t.Errorf("got %v", got)
	}
}

func TestOtherDatabaseOfTheSameServer(t *testing.T) {
	t.Parallel()
	for at, want := range map[string]string{
		"postgres://u:p%40@h:1/x?sslmode=require":    "postgres://u:p%40@h:1/y?sslmode=require",
		"postgresql://h?dbname=x&application_name=a": "postgresql://h/y?application_name=a",
		"host=h dbname=x":                            "host=h dbname=x dbname=y",
	} {
		if got, err := withDatabase(at, "y"); err != nil || got != want {
			t.Errorf("%s: %s, %v", at, got, err)
		}
	}
}

// message returns a message of the frontend in PostgreSQL's protocol.
func message(kind string, body string) string {
	n := 4 + len(body)
	return kind + string([]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}) + body
}

func TestStatementsAreCountedOnTheWire(t *testing.T) {
	t.Parallel()
	said := message("", "\x00\x03\x00\x00user\x00me\x00\x00") +
		message("p", "secret; secret") +
		message("P", "s\x00select 1; select 2\x00\x00\x00") + message("B", "\x00s\x00") + message("E", "\x00\x00\x00\x00\x00") + message("S", "") + // 1
		message("Q", "begin; select 1 ; commit;\x00") + // 3
		message("Q", "\x00") + message("Q", " ; \x00") + // nothing
		message("d", strings.Repeat("E", 2<<20)) + // longer than any buffer
		message("F", "call") + // 1
		message("X", "")
	var w wire
	var server bytes.Buffer
	if err := w.forward(&server, strings.NewReader(said)); err != io.EOF {
		t.Fatalf("forward: %v", err)
	}
	if server.String() != said {
		t.Error("the server did not get what the client said")
	}
	if n := w.statements.Load(); n != 5 {
		t.Errorf("%d statements, wanted 5", n)
	}
	if err := w.forward(io.Discard, strings.NewReader("\x00\x00\x00\x01")); err == nil || err == io.EOF {
		t.Errorf("a length of 1: %v", err)
	}
}

func TestCommandsAreCountedOnTheWire(t *testing.T) {
	t.Parallel()
	said := "*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$4\r\n*1\r\n\r\n"
	var w wire
	var server bytes.Buffer
	if err := w.commands(&server, strings.NewReader(said)); err != io.EOF {
		t.Fatalf("commands: %v", err)
	}
	if n := w.statements.Load(); n != 2 || server.String() != said {
		t.Errorf("%d commands, wanted 2; the server got %q", n, server.String())
	}
	if err := w.commands(io.Discard, strings.NewReader("GET / HTTP/1.1\r\n")); err == nil || err == io.EOF {
		t.Errorf("something else: %v", err)
	}
}

func TestFloorRowsHavePositionsOfTheirOwn(t *testing.T) {
	t.Parallel()
	f := &floor{}
	b := floorBuffer(7)
	read := func(i int) int64 {
		at := copyHeaderBytes + beforePosition + i*(len(b)-copyHeaderBytes-2)/floorRows
		n := int64(0)
		for _, c := range b[at : at+8] {
			n = n<<8 | int64(c)
		}
		return n
	}
	f.number(b)
	f.number(b)
	for _, i := range []int{0, 1, floorRows - 1} {
		if got, want := read(i), int64(floorRows+i+1); got != want {
			t.Errorf("row %d has position %d, wanted %d", i, got, want)
		}
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	r := Result{Scenario: "flow", Reason: "fsync is off", PerSecond: known(123456), Ratio: known(0.5), ServerCPU: known(6.25), Batch: 1000,
		Machine:    Machine{Cores: 2, PostgresVersion: "18.3", FsyncPerSecond: known(1000), Settings: map[string]string{"fsync": "off"}},
		FlowResult: &FlowResult{FloorPerSecond: 246912, FloorConnections: 2}}
	var b bytes.Buffer
	if err := r.Table(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"123,456/s", "246,912/s", "0.50", "6.25 µs", "NOT VALID", "fsync is off", "PostgreSQL 18.3", "PgQue", "16 vCPU", "outbox article"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, b.String())
		}
	}
}

func TestJSONHasItsFixedNames(t *testing.T) {
	t.Parallel()
	r := Result{FlowResult: &FlowResult{}, SingleResult: &SingleResult{}, LatencyResult: &LatencyResult{}, SendingResult: &SendingResult{}, SteadyResult: &SteadyResult{},
		PinnedResult: &PinnedResult{}, BacklogResult: &BacklogResult{}, OrderedResult: &OrderedResult{}, KindsResult: &KindsResult{}, FlowComparison: &FlowComparison{}, IdleResult: &IdleResult{}, TelemetryResult: &TelemetryResult{}, RelayResult: &RelayResult{}, PipelineResult: &PipelineResult{}, RedisResult: &RedisResult{}, NATSResult: &NATSResult{}}
	r.Machine.PostgresVersion = "18"
	has := encode(t, &r)
	// If two embedded structs had the same name, JSON would silently omit both.
	for _, name := range strings.Fields(`scenario valid per_second ratio machine server_cpu_us_per_message client_cpu_us_per_message
		floor_per_second plain_per_second handled_per_second p50_ms p95_ms p99_ms max_ms first_per_second last_per_second waiting
		connections queues_sent_to asked_per_second worker_processes most_notifications_per_second most_lock_wait_share ways truncations claims claims_after_truncation claims_after_other_upkeep subscriptions grown
		keys kinds flow_per_second own_rounds flow_rounds flow_cpu_ratio statements_per_second cpu_percent rss_mb variants
		broker_ceiling_per_second confirm_p50_ms per_minute sixths_cpu_ratio
		blmove_per_second brpop_per_second at_least_once_ratio at_most_once_ratio
		servers nats_ways idle_queues idle_pulls_per_second`) {
		if _, ok := has[name]; !ok {
			t.Errorf("%q is missing", name)
		}
	}
	for _, name := range strings.Fields("cores fsync_per_second postgres_version settings") {
		if _, ok := has["machine"].(map[string]any)[name]; !ok {
			t.Errorf("machine.%s is missing", name)
		}
	}
	if has := encode(t, &Result{Scenario: "idle", IdleResult: &IdleResult{}}); has["floor_per_second"] != nil || has["rss_mb"] == nil {
		t.Errorf("a scenario shows another's fields: %v", has)
	}
}

func encode(t *testing.T, r *Result) map[string]any {
	t.Helper()
	raw, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSharedBuffers(t *testing.T) {
	t.Parallel()
	for memory, want := range map[uint64]uint64{0: 1 << 30, 256 << 20: 128 << 20, 16 << 30: 4 << 30, 512 << 30: 8 << 30} {
		if got := sharedBuffers(memory); got != want {
			t.Errorf("of %d bytes %d, want %d", memory, got, want)
		}
	}
}

// The error for a URL that cannot be parsed does not contain its password.
func TestBrokersURLIsNotTold(t *testing.T) {
	t.Parallel()
	_, err := url.Parse(strings.ReplaceAll("amqp://user:secr!zzet@host/", "!", "%"))
	if err := notUsed(fmt.Errorf("dial: %w", err)); strings.Contains(err.Error(), "secr") {
		t.Error(err)
	}
}
