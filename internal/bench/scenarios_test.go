//go:build unix

package bench

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	goredis "github.com/redis/go-redis/v9"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// These tests check shapes and rules. They do not check how fast the run was, because other tests
// run at the same time.

// patient is an overhead that no machine should need.
const patient = 5 * time.Minute

// smoke runs a scenario briefly on the shared server, whose fsync is off.
func smoke(t *testing.T, scenario string, o Options) *Result {
	t.Helper()
	if o.DatabaseURL = testpg.Superuser(t); o.Duration == 0 {
		o.Duration = time.Second
	}
	o.drain = patient
	o.setDefaults(scenario)
	r, err := execute(t.Context(), scenario, o, patient)
	if err != nil {
		t.Fatal(err)
	}
	if r.Valid || !strings.HasPrefix(r.Reason, "fsync is off") {
		t.Errorf("valid is %t for the reason %q, though fsync is off", r.Valid, r.Reason)
	}
	if r.Scenario != scenario || r.Machine.Cores < 1 || r.Machine.Settings["fsync"] != "off" || r.Machine.FsyncPerSecond != nil ||
		!strings.HasPrefix(r.Machine.PostgresVersion, testpg.Version(t)) {
		t.Errorf("machine: %+v", r.Machine)
	}
	return r
}

// onlyFsync checks that the only reason against the result is fsync.
func onlyFsync(t *testing.T, r *Result) {
	t.Helper()
	if strings.Contains(r.Reason, ";") {
		t.Errorf("reason: %s", r.Reason)
	}
}

func above(t *testing.T, name string, v float64) {
	t.Helper()
	if v <= 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		t.Errorf("%s is %g", name, v)
	}
}

func aboveKnown(t *testing.T, name string, v *float64) {
	t.Helper()
	if v == nil {
		t.Errorf("%s is not known", name)
		return
	}
	above(t, name, *v)
}

// trafficFigures checks the figures of every scenario with a flow of messages.
func trafficFigures(t *testing.T, r *Result) {
	t.Helper()
	aboveKnown(t, "per_second", r.PerSecond)
	aboveKnown(t, "client CPU", r.ClientCPU)
	if runtime.GOOS == "linux" {
		aboveKnown(t, "server CPU", r.ServerCPU)
	}
	above(t, "messages", float64(r.Messages))
}

func TestTH1Flow(t *testing.T) {
	t.Parallel()
	profile := filepath.Join(t.TempDir(), "cpu.pprof")
	r := smoke(t, "flow", Options{Batch: 100, Profile: profile})
	onlyFsync(t, r)
	trafficFigures(t, r)
	aboveKnown(t, "ratio", r.Ratio)
	above(t, "floor_per_second", r.FloorPerSecond)
	if r.Batch != 100 || len(r.Rounds) == 0 || len(r.FloorRounds) != len(r.Rounds) {
		t.Errorf("batch %d, rounds %v, floor %v", r.Batch, r.Rounds, r.FloorRounds)
	}
	if got, want := *r.Ratio, *r.PerSecond/r.FloorPerSecond; math.Abs(got-want) > max(0.001*want, 0.00005) { // rounded to four digits
		t.Errorf("ratio %g is not %g ÷ %g", got, *r.PerSecond, r.FloorPerSecond)
	}
	if len(r.Rounds) == rounds { // late rounds are left out, and the profile with them
		if info, err := os.Stat(profile); err != nil || info.Size() == 0 {
			t.Errorf("no profile: %v", err)
		}
	}
}

func TestTH2Single(t *testing.T) {
	t.Parallel()
	r := smoke(t, "single", Options{})
	onlyFsync(t, r)
	trafficFigures(t, r)
	aboveKnown(t, "ratio", r.Ratio)
	above(t, "plain_per_second", r.PlainPerSecond)
	above(t, "handled_per_second", r.HandledPerSecond)
}

func TestTH3Pinned(t *testing.T) {
	t.Parallel()
	r := smoke(t, "pinned", Options{Batch: 100})
	trafficFigures(t, r)
	// If a sixth is sampled late, nothing may remain for the next.
	if len(r.SixthsCPU) != 6 || slices.Min(r.SixthsCPU) < 0 || slices.Max(r.SixthsCPU) <= 0 {
		t.Errorf("the server's CPU in sixths: %v", r.SixthsCPU)
	}
	if len(r.Sixths) != 6 || r.FirstPerSecond != r.Sixths[0] || r.LastPerSecond != r.Sixths[5] {
		t.Errorf("sixths: %+v", r.PinnedResult)
	}
}

func TestTH4Backlog(t *testing.T) {
	t.Parallel()
	var r *Result
	// On a busy machine a short round may settle nothing.
	for during := 3 * time.Second; r == nil || strings.Contains(r.Reason, "nothing was settled") && during < time.Minute; during *= 3 {
		r = smoke(t, "backlog", Options{Waiting: 2500, Batch: 100, Duration: during})
	}
	onlyFsync(t, r)
	trafficFigures(t, r)
	above(t, "empty_per_second", r.EmptyPerSecond)
	if r.Waiting != 2500 {
		t.Errorf("waiting: %d", r.Waiting)
	}
}

func TestBenchOrdered(t *testing.T) {
	t.Parallel()
	r := smoke(t, "ordered", Options{Batch: 100})
	onlyFsync(t, r)
	trafficFigures(t, r)
	aboveKnown(t, "ratio", r.Ratio)
	above(t, "flow_per_second", r.FlowPerSecond)
	if r.Keys != orderedKeys || len(r.OwnRounds) == 0 || len(r.OwnRounds) != len(r.FlowRounds) {
		t.Errorf("%+v %+v", r.OrderedResult, r.FlowComparison)
	}
}

func TestBenchKinds(t *testing.T) {
	t.Parallel()
	r := smoke(t, "kinds", Options{Batch: 100})
	trafficFigures(t, r)
	aboveKnown(t, "ratio", r.Ratio)
	aboveKnown(t, "flow_cpu_ratio", r.FlowComparison.CPURatio)
	if r.Kinds != benchKinds || len(r.OwnRounds) == 0 || len(r.OwnRounds) != len(r.FlowRounds) {
		t.Errorf("%+v %+v", r.KindsResult, r.FlowComparison)
	}
}

func TestOR7Relay(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{"RabbitMQ": {QueueType: "quorum"}, "Kafka": {Broker: "kafka"}, "NATS JetStream": {Broker: "nats"}, "Redis Streams": {Broker: "redis"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if o.Broker != "redis" {
				testrun.Nightly(t, "it starts each broker; Redis Streams run on each change")
			}
			r := smoke(t, "relay", o)
			trafficFigures(t, r)
			aboveKnown(t, "ratio", r.Ratio)
			above(t, "the ceiling", r.CeilingPerSecond)
			above(t, "from commit to confirm", r.ConfirmP50)
			if r.Broker != name || r.QueueType != o.QueueType || strings.Contains(r.Reason, "were settled") {
				t.Errorf("%+v", r)
			}
			var shown strings.Builder
			if err := r.Table(&shown); err != nil || !strings.Contains(shown.String(), name) {
				t.Errorf("%s, %v", &shown, err)
			}
		})
	}
}

func TestNP6Pipeline(t *testing.T) {
	testrun.Nightly(t, "it runs a bench on a broker")
	t.Parallel()
	r := smoke(t, "pipeline", Options{Handler: time.Millisecond, Consumers: 2})
	onlyFsync(t, r)
	trafficFigures(t, r)
	if r.PipelineResult == nil || r.Consumers != 2 || r.HandlerMS != 1 || r.ChunkSize != 10 || r.Inbox != "redis" {
		t.Fatalf("%+v", r)
	}
	above(t, "per_minute", r.PerMinute)
}

// redisFigures checks the figures of scenario redis.
func redisFigures(t *testing.T, r *Result) {
	t.Helper()
	trafficFigures(t, r)
	if r.RedisResult == nil || len(r.AtLeastOnceRounds) == 0 {
		t.Fatalf("%+v", r)
	}
	aboveKnown(t, "at_least_once_ratio", r.AtLeastOnceRatio)
	aboveKnown(t, "at_most_once_ratio", r.AtMostOnceRatio)
	above(t, "blmove_per_second", r.BLMovePerSecond)
	above(t, "brpop_per_second", r.BRPopPerSecond)
	above(t, "at_most_once_per_second", r.AtMostOncePerSecond)
	if runtime.GOOS == "linux" {
		aboveKnown(t, "CPU of BLMOVE", r.BLMoveServerCPU)
	}
	if !strings.HasPrefix(r.Machine.RedisVersion, "7.") && !strings.HasPrefix(r.Machine.RedisVersion, "8.") || r.Machine.PostgresVersion != "" {
		t.Errorf("machine: %+v", r.Machine)
	}
}

func TestRE6Redis(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, o Options) *Result {
		t.Helper()
		o.Duration, o.drain = time.Second, patient
		o.setDefaults("redis")
		r, err := execute(t.Context(), "redis", o, patient)
		if err != nil {
			t.Fatal(err)
		}
		redisFigures(t, r)
		return r
	}
	t.Run("its own", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		r := run(t, Options{DataDir: dir})
		if !r.Machine.Embedded || r.Machine.Settings["appendonly"] != "yes" || r.Machine.Settings["appendfsync"] != "everysec" || r.Valid == inMemory(dir) {
			t.Errorf("valid is %t (%s) on %+v", r.Valid, r.Reason, r.Machine)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
	t.Run("one that is given", func(t *testing.T) {
		t.Parallel()
		s, err := devbroker.StartRedis(t.Context(), t.TempDir(), "--appendonly", "no")
		if err != nil {
			t.Fatal(err)
		}
		defer s.Stop()
		client := goredis.NewClient(&goredis.Options{Addr: s.Address()})
		defer client.Close()
		if err := client.Set(t.Context(), "another's", "key", 0).Err(); err != nil {
			t.Fatal(err)
		}
		if r := run(t, Options{RedisURL: s.URL()}); r.Valid || !strings.Contains(r.Reason, "appendonly is off") {
			t.Errorf("valid is %t: %s", r.Valid, r.Reason)
		}
		if left, err := client.Keys(t.Context(), "*").Result(); err != nil || !slices.Equal(left, []string{"another's"}) {
			t.Errorf("keys left behind: %v, %v", left, err)
		}
	})
}

// The scenarios that can run on either engine run on Redis.
func TestScenariosOnRedis(t *testing.T) {
	t.Parallel()
	s, err := devbroker.StartRedis(t.Context(), t.TempDir(), "--appendonly", "no")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	for _, name := range redisScenarios() {
		if !CanPostgres(name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := Options{Engine: "redis", RedisURL: s.URL(), Duration: time.Second, Batch: 100, Rate: 300, drain: patient}
			o.setDefaults(name)
			r, err := execute(t.Context(), name, o, patient)
			if err != nil {
				t.Fatal(err)
			}
			if name == "idle" {
				if r.IdleResult == nil || r.Queues != idleQueues { // in such a short time it may send no command
					t.Errorf("%+v", r)
				}
			} else {
				onlyFsync(t, r)
				trafficFigures(t, r)
			}
			if r.Valid || !strings.Contains(r.Reason, "appendonly is off") || r.Machine.RedisVersion == "" || r.Machine.PostgresVersion != "" {
				t.Errorf("valid is %t (%s) on %+v", r.Valid, r.Reason, r.Machine)
			}
			var shown strings.Builder
			if err := r.Table(&shown); err != nil || strings.Contains(shown.String(), "COPY") || strings.Contains(shown.String(), "PgQue") {
				t.Errorf("%s, %v", &shown, err)
			}
		})
	}
}

func TestRedisThatIsNotThereIsUnavailable(t *testing.T) {
	_, err := Run(t.Context(), "redis", Options{RedisURL: "redis://:geheim@127.0.0.1:1/0"})
	if posthaste.CodeOf(err) != posthaste.CodeUnavailable || strings.Contains(err.Error(), "geheim") {
		t.Errorf("it does not answer: %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := Run(t.Context(), "redis", Options{}); posthaste.CodeOf(err) != posthaste.CodeUnavailable || !strings.Contains(err.Error(), "not installed") {
		t.Errorf("none is installed: %v", err)
	}
}

func TestBenchTelemetry(t *testing.T) {
	t.Parallel()
	r := smoke(t, "telemetry", Options{Batch: 100})
	onlyFsync(t, r)
	trafficFigures(t, r)
	aboveKnown(t, "ratio", r.Ratio)
	if len(r.Variants) != 4 {
		t.Fatalf("%+v", r.TelemetryResult)
	}
	for _, v := range r.Variants {
		above(t, v.Telemetry+", flow", v.Flow.Ratio)
		above(t, v.Telemetry+", single", v.Single.Ratio)
	}
}

func TestLA1Latency(t *testing.T) {
	t.Parallel()
	t.Run("enough samples", func(t *testing.T) {
		t.Parallel()
		r := smoke(t, "latency", Options{Rate: 300, OpenSender: true})
		onlyFsync(t, r)
		trafficFigures(t, r)
		above(t, "p50", r.P50)
		if r.P50 > r.P95 || r.P95 > r.P99 || r.P99 > r.Max || !r.OpenSender || r.Messages != 280 {
			t.Errorf("latency: %+v of %d", r.LatencyResult, r.Messages)
		}
	})
	t.Run("too few samples", func(t *testing.T) {
		t.Parallel()
		if r := smoke(t, "latency", Options{}); !strings.Contains(r.Reason, "30 samples are too few") {
			t.Errorf("reason: %s", r.Reason)
		}
	})
}

func TestLA2Idle(t *testing.T) {
	t.Parallel()
	r := smoke(t, "idle", Options{})
	if r.Queues != 20 || !strings.Contains(r.Reason, "of idling are too few") || r.Ratio != nil || r.PerSecond != nil {
		t.Errorf("idle: %+v %s", r.IdleResult, r.Reason)
	}
	above(t, "measured_seconds", r.MeasuredSeconds)
	if runtime.GOOS == "linux" {
		above(t, "rss_mb", r.RSSMB)
	}
}

// A run drops its databases from a given server, even after Ctrl-C.
func TestNothingIsLeftBehind(t *testing.T) {
	t.Parallel()
	s := testpg.Server(t)
	left := func() (n int) {
		conn, err := pgx.Connect(t.Context(), s.URL())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		if err := conn.QueryRow(t.Context(), "select count(*) from pg_database where datname like 'posthaste_bench_%'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	made := 0
	_, err := Run(ctx, "flow", Options{Duration: time.Minute, DatabaseURL: s.URL(), Progress: func(phase string, _, _ time.Duration) {
		if phase == "floor" && made == 0 {
			made = left()
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the run was cancelled and returned %v", err)
	}
	if made != 2 || left() != 0 {
		t.Errorf("%d databases were made and %d are left", made, left())
	}
}

// A run on the embedded server, which is durable and whose memory and WAL are used beforehand, is
// valid.
func TestEmbeddedServerIsDurable(t *testing.T) {
	t.Parallel()
	testrun.Nightly(t, "it flushes a disk, whose speed decides how long it takes")
	// Not t.TempDir, which is in memory in a run of all tests.
	dir, err := os.MkdirTemp("/var/tmp", "posthaste-bench-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if inMemory(dir) {
		t.Fatalf("this test needs a disk, and %s is in memory", dir)
	}
	var phases []string
	told := func(phase string, _, _ time.Duration) {
		if !slices.Contains(phases, phase) {
			phases = append(phases, phase)
		}
	}
	o := Options{Duration: 2 * time.Second, DataDir: dir, Batch: 100, PostgresVersion: testpg.Version(t), drain: patient, Progress: told}
	o.setDefaults("pinned")
	r, err := execute(t.Context(), "pinned", o, patient)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(phases, "using the server's memory and log once") {
		t.Errorf("the phases were %q", phases)
	}
	if !r.Valid {
		t.Errorf("the run is not valid: %s", r.Reason)
	}
	aboveKnown(t, "fsync_per_second", r.Machine.FsyncPerSecond)
	if !r.Machine.Embedded || r.Machine.Settings["fsync"] != "on" || r.Machine.Settings["synchronous_commit"] != "on" {
		t.Errorf("machine: %+v", r.Machine)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
