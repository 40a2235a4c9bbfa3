package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// figure is a published or measured figure of another product.
type figure struct{ who, says, where string }

const (
	sideBySide = "measured side by side: 2 shared cores, PostgreSQL 18, fsync on, 200 bytes, ±20 %"
	notStated  = "its author's machine, not described"
	// jigglerMachine is the machine of the figures in its documentation.
	jigglerMachine = "i7-6700HQ, Ruby 3.2, Redis 7.0.7, no-op jobs, concurrency 10"
)

// figures are printed with a scenario's result. They do not rank products, because the
// conditions differ from row to row and from this machine.
var figures = map[string][]figure{
	"flow": {
		{"PgQue (whole batches are acknowledged)", "79,000–104,000/s", sideBySide},
		{"Watermill SQL", "45,000–54,000/s", sideBySide},
		{"pgmq", "30,000–35,000/s", sideBySide},
		{"graphile-worker", "23,000–26,000/s", sideBySide},
		{"pg-boss", "17,000–21,000/s", sideBySide},
		{"River", "16,000–18,000/s", sideBySide},
		{"PgQueuer", "12,000–14,000/s", sideBySide},
		{"Procrastinate", "400/s", sideBySide},
		{"graphile-worker's own figure", "184,000/s", "an i9, prefetch 500, batched deletes"},
		{"River's own figure", "46,000–56,000/s", "an M2, 1 million no-op jobs put in beforehand"},
		{"pgmq's own figure", "reads 30,000/s, writes 150,000/s", "16 vCPU, batches of 100"},
		{"outbox article", "1,350 → 32,500/s to RabbitMQ", notStated},
		{"PostgreSQL-only article (tafto)", "81 → 3,462/s", notStated},
		{"notification article", "1,321,975 a minute", "two servers; RabbitMQ, Redis, SQL Server"},
		{"jiggler (Redis)", "3,765/s at least once, 7,057/s at most once", jigglerMachine},
	},
	"single": {
		{"Watermill SQL", "8,867/s sent, 980/s done", sideBySide},
		{"PgQue", "6,256/s sent, 6,252/s done", sideBySide},
		{"pgmq", "5,505/s sent, 5,489/s done", sideBySide},
		{"River", "2,989/s sent, 2,967/s done", sideBySide},
		{"pg-boss", "2,160/s sent, 2,159/s done", sideBySide},
		{"PgQueuer", "1,209/s sent and done", sideBySide},
		{"graphile-worker", "865/s sent, 864/s done", sideBySide},
		{"Procrastinate", "820/s sent, 202/s done", sideBySide},
		{"plain one-row commits", "20,900/s", sideBySide},
		{"article on hasql-queue", "1,800/s enqueued, 1,710/s dequeued (1 × 1)", notStated},
	},
	"latency": {
		{"pgmq", "p50 2.3, p99 4.7 ms", sideBySide},
		{"River", "p50 2.5, p99 4.7 ms", sideBySide},
		{"graphile-worker", "p50 3.4, p99 7.4 ms", sideBySide},
		{"PgQueuer", "p50 3.7, p99 6.3 ms", sideBySide},
		{"pg-boss", "p50 4.3, p99 9.2 ms", sideBySide},
		{"Procrastinate", "p50 4.4, p99 8.4 ms", sideBySide},
		{"Watermill SQL", "p50 6.9, p99 13.2 ms", sideBySide},
		{"PgQue", "p50 10.7, p99 14.1 ms", sideBySide},
		{"awa's own figure", "p95 22 ms", notStated},
		{"PgQue's own figure", "p50 52 ms at its 100 ms tick", notStated},
	},
	"pinned": {
		{"Watermill SQL", "7,100 → 8,300/s in 60 s", sideBySide},
		{"PgQue", "84,000 → 65,000/s", sideBySide},
		{"River", "4,900 → 1,800/s", sideBySide},
		{"pgmq", "5,300 → 1,800/s", sideBySide},
		{"graphile-worker", "6,700 → 2,400/s", sideBySide},
		{"pg-boss", "8,600 → 2,900/s", sideBySide},
		{"PgQueuer", "5,700 → 1,500/s", sideBySide},
		{"Procrastinate", "500 → 200/s", sideBySide},
	},
	"relay": {
		{"outbox article", "1,350 → 32,500/s to RabbitMQ", notStated},
	},
	"pipeline": {
		{"notification article", "1,321,975 a minute", "two servers; RabbitMQ, Redis, SQL Server"},
	},
	"redis": {
		{"jiggler, at least once", "3,765/s", jigglerMachine},
		{"jiggler, at most once", "7,057/s", jigglerMachine},
	},
	"idle": {
		{"pgmq", "0.2 statements/s", sideBySide},
		{"graphile-worker", "0.5 statements/s", sideBySide},
		{"PgQueuer", "1.1 statements/s", sideBySide},
		{"pg-boss", "1.3 statements/s", sideBySide},
		{"Procrastinate", "1.3 statements/s", sideBySide},
		{"River", "2.6 statements/s", sideBySide},
		{"Watermill SQL", "4 statements/s", sideBySide},
		{"PgQue", "10.3 statements/s", sideBySide},
	},
}

// Table writes the result as text, followed by the figures of other products and their
// machines.
func (r *Result) Table(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "%s\t%s\n", r.Scenario, Describe(r.Scenario))
	for _, line := range r.lines() {
		fmt.Fprintf(t, "  %s\t%s\n", line[0], line[1])
	}
	m := &r.Machine
	store := "PostgreSQL " + m.PostgresVersion
	if m.RedisVersion != "" {
		store = "Redis " + m.RedisVersion
	}
	if m.NATSVersion != "" {
		store = "NATS " + m.NATSVersion
	}
	fmt.Fprintf(t, "machine\t%d cores, %s\n", m.Cores, store)
	if m.FsyncPerSecond != nil {
		fmt.Fprintf(t, "  fsync\t%s/s\n", grouped(*m.FsyncPerSecond))
	}
	settings := make([]string, 0, len(m.Settings))
	for _, name := range slices.Sorted(maps.Keys(m.Settings)) {
		settings = append(settings, name+"="+m.Settings[name])
	}
	for part := range slices.Chunk(settings, 4) {
		fmt.Fprintf(t, "  settings\t%s\n", strings.Join(part, " "))
	}
	if len(r.LeftBehind) > 0 {
		fmt.Fprintf(t, "LEFT BEHIND\tdrop these databases: %s\n", strings.Join(r.LeftBehind, ", "))
	}
	if !r.Valid {
		fmt.Fprintf(t, "NOT VALID\t%s\n", r.Reason)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if m.RedisVersion != "" && CanPostgres(r.Scenario) {
		return nil // the other figures were measured on PostgreSQL
	}
	return others(w, r.Scenario)
}

// others writes the figures of other products for a scenario.
func others(w io.Writer, scenario string) error {
	if scenario == "backlog" {
		scenario = "flow"
	}
	if len(figures[scenario]) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w, "\nothers, on machines and terms of their own:"); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range figures[scenario] {
		fmt.Fprintf(t, "  %s\t%s\t%s\n", f.who, f.says, f.where)
	}
	return t.Flush()
}

// on returns the text for the result's engine.
func (r *Result) on(postgres, redis string) string {
	if r.Machine.RedisVersion != "" {
		return redis
	}
	return postgres
}

// lines returns the names and values of the figures.
func (r *Result) lines() (lines [][2]string) {
	line := func(name, format string, args ...any) {
		lines = append(lines, [2]string{name, fmt.Sprintf(format, args...)})
	}
	if r.PerSecond != nil {
		line("messages", "%s/s (%s in all)", grouped(*r.PerSecond), grouped(float64(r.Messages)))
	}
	if r.Batch > 0 {
		line("sent in batches of", "%d, by %d goroutines", r.Batch, r.Senders)
	}
	if f := r.FlowResult; f != nil {
		line("floor", "%s/s: %s on %d connections", grouped(f.FloorPerSecond),
			r.on("the same rows only inserted, by COPY", "the same payloads only pushed to a list, 1,000 with a command,"), f.FloorConnections)
	}
	if s := r.SingleResult; s != nil {
		line("handled", "%s/s", grouped(s.HandledPerSecond))
		line(r.on("plain commits", "plain pushes to a list"), "%s/s", grouped(s.PlainPerSecond))
	}
	r.sendingLines(line)
	r.steadyLines(line)
	if l := r.LatencyResult; l != nil {
		line("p50, p95, p99", "%g, %g, %g ms", l.P50, l.P95, l.P99)
		line("longest", "%g ms", l.Max)
		if l.OpenSender {
			line("beside", "another sender's open transaction")
		}
	}
	r.pinnedLines(line)
	if b := r.BacklogResult; b != nil {
		line("with an empty queue", "%s/s", grouped(b.EmptyPerSecond))
		line("waiting", "%s", grouped(float64(b.Waiting)))
	}
	r.besideLines(line)
	r.telemetryLines(line)
	if i := r.IdleResult; i != nil {
		line(r.on("statements", "commands"), "%g/s for %d queues", i.StatementsPerSecond, i.Queues)
		line("CPU", "%g %% of a core", i.CPUPercent)
		line("memory", "%g MB", i.RSSMB)
	}
	r.brokerLines(line)
	r.redisLines(line)
	r.natsLines(line)
	if r.Ratio != nil {
		line("ratio", "%.2f", *r.Ratio)
	}
	if r.ServerCPU != nil {
		line("server CPU", "%.4g µs per message", *r.ServerCPU)
	}
	if r.ClientCPU != nil {
		line("client CPU", "%.4g µs per message", *r.ClientCPU)
	}
	return lines
}

// telemetryLines adds the lines of scenario telemetry.
func (r *Result) telemetryLines(line func(name, format string, args ...any)) {
	if r.TelemetryResult == nil {
		return
	}
	for _, v := range r.Variants {
		for i, c := range []TelemetryCost{v.Flow, v.Single} {
			line([]string{"flow", "single"}[i]+", "+v.Telemetry, "%s/s (%g), %g µs CPU a message (%s)", grouped(c.PerSecond), c.Ratio, c.CPU, maybe(c.CPURatio))
		}
	}
}

// pinnedLines adds the lines of scenario pinned.
func (r *Result) pinnedLines(line func(name, format string, args ...any)) {
	p := r.PinnedResult
	if p == nil {
		return
	}
	line("first sixth", "%s/s", grouped(p.FirstPerSecond))
	line("last sixth", "%s/s", grouped(p.LastPerSecond))
	if n := len(p.SixthsCPU); n > 0 {
		line("of the server", "%g µs CPU per message in the first sixth, %g µs in the last", p.SixthsCPU[0], p.SixthsCPU[n-1])
	}
	if p.PinnedKeys > 0 {
		line("read by", "%d subscriptions of a queue with %s keys (%s); a delivery counts as a share of its message", p.Subscriptions, grouped(float64(p.PinnedKeys)), p.Keyed)
	}
	for _, g := range p.Grown[:min(len(p.Grown), 8)] {
		line(g.Table+" grew by", "%s kB to %s kB of rows and %s kB of indexes; %s dead rows, %s updates, %s rows read", grouped(float64(g.GrownBytes/1024)), grouped(float64(g.Bytes/1024)),
			grouped(float64(g.IndexBytes/1024)), grouped(float64(g.DeadRows)), grouped(float64(g.Updates)), grouped(float64(g.Scanned)))
	}
}

// brokerLines adds the lines of scenarios relay and pipeline.
func (r *Result) brokerLines(line func(name, format string, args ...any)) {
	if b := r.RelayResult; b != nil {
		to := b.Broker
		if b.QueueType != "" {
			to += ", " + b.QueueType + " queue"
		}
		line("to", "%s", to)
		line("ceiling", "%s/s: its client alone, confirmed, %d outstanding on %d connections", grouped(b.CeilingPerSecond), b.CeilingOutstanding, b.CeilingConnections)
		line("commit to confirm", "p50 %g, p99 %g ms at %d/s", b.ConfirmP50, b.ConfirmP99, confirmRate)
	}
	if p := r.PipelineResult; p != nil {
		line("a minute", "%s", grouped(p.PerMinute))
		line("through", "RabbitMQ, %d to a message, and %d consumers with %d handlers each of %g ms, behind an inbox on %s", p.ChunkSize, p.Consumers, p.HandlersEach, p.HandlerMS, p.Inbox)
	}
}

// redisLines adds the lines of scenario redis.
func (r *Result) redisLines(line func(name, format string, args ...any)) {
	v := r.RedisResult
	if v == nil {
		return
	}
	line("BLMOVE and LREM", "%s/s on %d connections", grouped(v.BLMovePerSecond), loopConnections)
	line("at most once", "%s/s", grouped(v.AtMostOncePerSecond))
	line("BRPOP", "%s/s on %d connections", grouped(v.BRPopPerSecond), loopConnections)
	line("at most once, ratio", "%s", maybe(v.AtMostOnceRatio))
	line("at most once, CPU", "server %s µs, client %s µs per message", maybe(v.AtMostOnceServerCPU), maybe(v.AtMostOnceClientCPU))
	line("BLMOVE and LREM, CPU", "server %s µs, client %s µs per message", maybe(v.BLMoveServerCPU), maybe(v.BLMoveClientCPU))
	line("BRPOP, CPU", "server %s µs, client %s µs per message", maybe(v.BRPopServerCPU), maybe(v.BRPopClientCPU))
}

// steadyLines adds the lines of scenario flow with slots that turn over.
func (r *Result) steadyLines(line func(name, format string, args ...any)) {
	v := r.SteadyResult
	if v == nil {
		return
	}
	line("truncations", "%d, with %d live slots", v.Truncations, v.LiveSlots)
	for _, c := range []struct {
		name string
		ClaimTimes
	}{{"claims", v.Claims}, {"within 200 ms of a truncation", v.AfterTruncation}, {"within 200 ms of other upkeep", v.AfterUpkeep}} {
		line(c.name, "p50 %g, p99 %g, longest %g ms of %s", c.P50, c.P99, c.Max, grouped(float64(c.Claims)))
	}
}

// grouped formats a number with commas between thousands.
func grouped(v float64) string {
	s := fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// maybe formats a figure, or returns a dash if it is unknown.
func maybe(v *float64) string {
	if v == nil {
		return "–"
	}
	return fmt.Sprintf("%g", *v)
}

// besideLines describes ordered and kinds.
func (r *Result) besideLines(line func(name, format string, args ...any)) {
	if o := r.OrderedResult; o != nil {
		line("keys", "%s", grouped(float64(o.Keys)))
	}
	if k := r.KindsResult; k != nil {
		line("kinds", "%d", k.Kinds)
	}
	if c := r.FlowComparison; c != nil {
		line("through a plain queue", "%s/s", grouped(c.FlowPerSecond))
		if c.CPURatio != nil {
			line("CPU ratio", "%.2f", *c.CPURatio)
		}
	}
}
