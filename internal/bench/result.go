package bench

import (
	"math"
	"slices"
	"time"
)

// Result is what one run measured, as its JSON says it. What does not apply to
// the scenario, or cannot be known here, is null or absent.
type Result struct {
	Scenario string `json:"scenario"`
	// Valid says whether the figures may be trusted; Reason why not.
	Valid  bool   `json:"valid"`
	Reason string `json:"reason,omitempty"`
	// PerSecond is messages per second, and Ratio what the scenario compares.
	PerSecond *float64 `json:"per_second"`
	Ratio     *float64 `json:"ratio"`
	// ServerCPU and ClientCPU are microseconds of CPU per message.
	ServerCPU *float64 `json:"server_cpu_us_per_message"`
	ClientCPU *float64 `json:"client_cpu_us_per_message"`
	// Messages is how many were measured.
	Messages int64 `json:"messages"`
	// Batch is how many messages one Send carried, where that was chosen.
	Batch int `json:"batch,omitempty"`
	// Senders is how many goroutines sent batches.
	Senders int `json:"senders,omitempty"`
	// DurationSeconds is what the whole run took.
	DurationSeconds float64 `json:"duration_seconds"`
	Machine         Machine `json:"machine"`
	// LeftBehind are databases of the run that could not be dropped.
	LeftBehind []string `json:"left_behind,omitempty"`

	*FlowResult
	*SingleResult
	*SendingResult
	*SteadyResult
	*LatencyResult
	*PinnedResult
	*BacklogResult
	*OrderedResult
	*IdleResult
	*RelayResult
	*TelemetryResult
	*PipelineResult
	*RedisResult
}

// Machine is what the figures were measured on.
type Machine struct {
	Cores int `json:"cores"`
	// FsyncPerSecond is how often 8 KiB can be written and synced one after
	// the other where the database lies. Null where that is out of reach.
	FsyncPerSecond  *float64 `json:"fsync_per_second"`
	PostgresVersion string   `json:"postgres_version,omitempty"`
	RedisVersion    string   `json:"redis_version,omitempty"`
	// Embedded says that the run started PostgreSQL or Redis itself.
	Embedded bool `json:"embedded"`
	// Settings of the server that durability and speed hang on.
	Settings map[string]string `json:"settings"`
}

// FlowResult is what scenario flow has of its own.
type FlowResult struct {
	// FloorPerSecond is rows per second by COPY alone, or on Redis messages pushed to a
	// list alone, with the number of connections that was best.
	FloorPerSecond   float64 `json:"floor_per_second"`
	FloorConnections int     `json:"floor_connections"`
	// Rounds and FloorRounds are the figures of each round.
	Rounds      []float64 `json:"rounds"`
	FloorRounds []float64 `json:"floor_rounds"`
	// FloorServerCPU is the floor's server CPU per row, in microseconds.
	FloorServerCPU *float64 `json:"floor_server_cpu_us_per_message"`
}

// SingleResult is what scenario single has of its own.
type SingleResult struct {
	PlainPerSecond   float64   `json:"plain_per_second"`
	HandledPerSecond float64   `json:"handled_per_second"`
	SingleRounds     []float64 `json:"single_rounds"`
	PlainRounds      []float64 `json:"plain_rounds"`
	PlainServerCPU   *float64  `json:"plain_server_cpu_us_per_message"`
}

// SendingResult is what scenarios transactional and senders have of their own. PerSecond
// and the CPU of the result are of one way with a worker: by SQL, where the ratio is that
// to transactions that insert the payload into a table, or by HTTP, where it is that to
// Engine.Send.
type SendingResult struct {
	Connections int `json:"connections"`
	SentTo      int `json:"queues_sent_to"`
	// WorkerProcesses handle the messages.
	WorkerProcesses int `json:"worker_processes"`
	// ArrayOf is how many messages an array sent by HTTP holds.
	ArrayOf int `json:"array_of,omitempty"`
	// AskedPerSecond is the rate that was asked for; 0: as fast as goes.
	AskedPerSecond float64 `json:"asked_per_second"`
	// MostNotifications is that of the way that has most, of those with more than 200 sends
	// a second. MostLockWaits is that of any way.
	MostNotifications float64      `json:"most_notifications_per_second"`
	MostLockWaits     *float64     `json:"most_lock_wait_share"`
	Ways              []SendingWay `json:"ways"`
}

// SendingWay is one kind of transaction or call. Figures are medians of the rounds, and
// ratios those of the ratios in each round.
type SendingWay struct {
	Way string `json:"way"`
	// Worker says whether workers handle the messages meanwhile; empty where none are sent.
	Worker string `json:"worker,omitempty"`
	// HTTP says that the messages go through an HTTP server.
	HTTP      bool      `json:"http,omitempty"`
	PerSecond float64   `json:"per_second"`
	Rounds    []float64 `json:"rounds"`
	// Messages is how many were sent; of ways without one, transactions.
	Messages int64 `json:"messages"`
	// RatioToRow compares with the business row alone, RatioToPayloads with the payload
	// inserted into a second table.
	RatioToRow      *float64 `json:"ratio_to_row_alone,omitempty"`
	RatioToPayloads *float64 `json:"ratio_to_two_rows,omitempty"`
	// RatioToPlain compares with the payload inserted into a table, or pushed to a list of
	// Redis, and RatioToEngine with Engine.Send, by messages.
	RatioToPlain  *float64 `json:"ratio_to_plain,omitempty"`
	RatioToEngine *float64 `json:"ratio_to_engine_send,omitempty"`
	// RatioToNobody compares a way with a worker with the same way without one.
	RatioToNobody *float64 `json:"ratio_to_no_worker,omitempty"`
	// CPU is microseconds per message: of PostgreSQL or Redis, where with a worker handling
	// the message is part of it, of the senders' process, of the HTTP server's and of the
	// workers'.
	ServerCPU     *float64 `json:"server_cpu_us"`
	ClientCPU     *float64 `json:"client_cpu_us"`
	HTTPServerCPU *float64 `json:"http_server_cpu_us,omitempty"`
	WorkerCPU     *float64 `json:"worker_cpu_us,omitempty"`
	// ServerCPUAbove is what the server needs more than for the payload in a second table.
	ServerCPUAbove *float64 `json:"server_cpu_us_above_two_rows,omitempty"`
	// Handled is how many messages per second were sent and settled.
	Handled *float64 `json:"handled_per_second,omitempty"`
	// Notifications are those per second on the doorbell's channel, or on those of Redis.
	// LockWaits is the share of senders that waited for the lock of PostgreSQL's
	// notifications, of those at work whenever they were looked at, which Sampled counts.
	Notifications float64  `json:"notifications_per_second"`
	LockWaits     *float64 `json:"lock_wait_share"`
	Sampled       int64    `json:"senders_sampled"`
	// AtOnset is how many notifications there were at the beginning of each round, before it
	// was measured.
	AtOnset []int64 `json:"notifications_at_onset"`
}

// SteadyResult is what scenario flow has of its own with slots that turn over.
type SteadyResult struct {
	// LiveSlots is how many slots of the ring held rows at the beginning.
	LiveSlots   int `json:"live_slots"`
	Truncations int `json:"truncations"`
	// Claims are all that handed something out.
	Claims ClaimTimes `json:"claims"`
	// AfterTruncation are those between the beginning of a round of upkeep that truncated a
	// slot and 200 ms after its end. AfterUpkeep are those beside the other rounds.
	AfterTruncation ClaimTimes `json:"claims_after_truncation"`
	AfterUpkeep     ClaimTimes `json:"claims_after_other_upkeep"`
	// WorstOfEach is the longest claim of each truncation, in milliseconds.
	WorstOfEach []float64 `json:"worst_of_each_truncation_ms"`
}

// ClaimTimes is how long claims took, in milliseconds.
type ClaimTimes struct {
	Claims int     `json:"claims"`
	P50    float64 `json:"p50_ms"`
	P99    float64 `json:"p99_ms"`
	Max    float64 `json:"max_ms"`
}

// LatencyResult is what scenario latency has of its own, in milliseconds.
type LatencyResult struct {
	P50        float64 `json:"p50_ms"`
	P95        float64 `json:"p95_ms"`
	P99        float64 `json:"p99_ms"`
	Max        float64 `json:"max_ms"`
	Rate       float64 `json:"rate"`
	OpenSender bool    `json:"open_sender"`
	Duplicates int64   `json:"duplicates"`
}

// PinnedResult is what scenario pinned has of its own.
type PinnedResult struct {
	FirstPerSecond float64 `json:"first_per_second"`
	LastPerSecond  float64 `json:"last_per_second"`
	// Sixths is the rate of each sixth of the run.
	Sixths []float64 `json:"sixths_per_second"`
	// SixthsCPU is the server's CPU per message in each of them, in microseconds,
	// which a busy machine moves less than the rate. Null where that is out of reach.
	SixthsCPU []float64 `json:"sixths_server_cpu_us_per_message"`
	// CPURatio is the CPU per message of the last sixth to that of the first.
	CPURatio *float64 `json:"sixths_cpu_ratio"`
	// Subscriptions read each message. A message counts as settled in shares: with three
	// subscriptions each delivery that is settled is a third of one.
	Subscriptions int `json:"subscriptions"`
	// Keyed is the kind of queue, limits or ordered; empty for a plain one.
	Keyed string `json:"keyed,omitempty"`
	// PinnedKeys is how many keys the messages had; 0 for a plain queue.
	PinnedKeys int `json:"pinned_keys,omitempty"`
	// Grown are the tables that grew in the run, those first that grew most.
	Grown []TableGrowth `json:"grown"`
}

// OrderedResult is what scenario ordered has of its own.
type OrderedResult struct {
	// Keys is how many keys the messages had.
	Keys int `json:"keys"`
	// FlowPerSecond is what went through a plain queue in the same run, without keys.
	FlowPerSecond float64 `json:"flow_per_second"`
	// OrderedRounds and FlowRounds are the figures of each round.
	OrderedRounds []float64 `json:"ordered_rounds"`
	FlowRounds    []float64 `json:"flow_rounds"`
	// FlowServerCPU is the plain queue's server CPU per message, in microseconds.
	FlowServerCPU *float64 `json:"flow_server_cpu_us_per_message"`
}

// BacklogResult is what scenario backlog has of its own.
type BacklogResult struct {
	Waiting        int     `json:"waiting"`
	EmptyPerSecond float64 `json:"empty_per_second"`
	// FullRounds and EmptyRounds are the figures of each round; an empty queue's is the
	// first and the last.
	FullRounds  []float64 `json:"backlog_rounds"`
	EmptyRounds []float64 `json:"empty_rounds"`
}

// TelemetryResult is what scenario telemetry has of its own. The ratio is that of
// flow with metrics.
type TelemetryResult struct {
	Variants []TelemetryVariant `json:"variants"`
}

// TelemetryVariant is flow and single with some telemetry.
type TelemetryVariant struct {
	Telemetry string        `json:"telemetry"`
	Flow      TelemetryCost `json:"flow"`
	Single    TelemetryCost `json:"single"`
}

// TelemetryCost is what telemetry costs one kind of traffic. Ratios are the medians
// of those to the same turns without any, which a busy machine moves less.
type TelemetryCost struct {
	PerSecond float64 `json:"per_second"`
	Ratio     float64 `json:"ratio"`
	// CPU is of server and client together, in microseconds. CPURatio is null where
	// that is out of reach.
	CPU      float64  `json:"cpu_us_per_message"`
	CPURatio *float64 `json:"cpu_ratio"`
}

// IdleResult is what scenario idle has of its own. Statements are commands on Redis.
type IdleResult struct {
	Queues              int     `json:"queues"`
	StatementsPerSecond float64 `json:"statements_per_second"`
	// CPUPercent is of one core, of the worker's process.
	CPUPercent float64 `json:"cpu_percent"`
	// ServerCPUPercent is of one core, of the whole server.
	ServerCPUPercent *float64 `json:"server_cpu_percent"`
	RSSMB            float64  `json:"rss_mb"`
	Statements       int64    `json:"statements"`
	MeasuredSeconds  float64  `json:"measured_seconds"`
}

// RelayResult is what scenario relay has of its own.
type RelayResult struct {
	Broker string `json:"broker"`
	// QueueType is that of RabbitMQ's queue.
	QueueType string `json:"queue_type,omitempty"`
	// CeilingPerSecond is what the broker's client publishes alone, confirmed, with
	// the outstanding messages and connections that were best.
	CeilingPerSecond   float64 `json:"broker_ceiling_per_second"`
	CeilingOutstanding int     `json:"ceiling_outstanding"`
	CeilingConnections int     `json:"ceiling_connections"`
	// ConfirmP50 and ConfirmP99 are from a message's commit to the broker's
	// confirm, in milliseconds, at 50 messages a second.
	ConfirmP50 float64 `json:"confirm_p50_ms"`
	ConfirmP99 float64 `json:"confirm_p99_ms"`
}

// PipelineResult is what scenario pipeline has of its own.
type PipelineResult struct {
	// PerMinute is notifications, from when the relay starts on what has fallen due
	// to the last one's settling.
	PerMinute float64 `json:"per_minute"`
	// Consumers take chunks from the broker, each with so many handlers.
	Consumers    int     `json:"consumers"`
	HandlersEach int     `json:"handlers_each"`
	HandlerMS    float64 `json:"handler_ms"`
	ChunkSize    int     `json:"chunk_size"`
	// Inbox is the store of the inbox that each handler stands behind.
	Inbox string `json:"inbox"`
}

// RedisResult is what scenario redis has of its own. PerSecond, ServerCPU and
// ClientCPU of the result are of the runtime at least once.
type RedisResult struct {
	AtMostOncePerSecond float64 `json:"at_most_once_per_second"`
	// BLMovePerSecond and BRPopPerSecond are of loops on 50 connections that are not
	// pipelined.
	BLMovePerSecond float64 `json:"blmove_per_second"`
	BRPopPerSecond  float64 `json:"brpop_per_second"`
	// AtLeastOnceRatio compares with BLMOVE and LREM, AtMostOnceRatio with BRPOP.
	AtLeastOnceRatio *float64 `json:"at_least_once_ratio"`
	AtMostOnceRatio  *float64 `json:"at_most_once_ratio"`
	// CPU per message in microseconds. Null where that is out of reach.
	AtMostOnceServerCPU *float64 `json:"at_most_once_server_cpu_us_per_message"`
	AtMostOnceClientCPU *float64 `json:"at_most_once_client_cpu_us_per_message"`
	BLMoveServerCPU     *float64 `json:"blmove_server_cpu_us_per_message"`
	BLMoveClientCPU     *float64 `json:"blmove_client_cpu_us_per_message"`
	BRPopServerCPU      *float64 `json:"brpop_server_cpu_us_per_message"`
	BRPopClientCPU      *float64 `json:"brpop_client_cpu_us_per_message"`
	// The figures of each round.
	AtLeastOnceRounds []float64 `json:"at_least_once_rounds"`
	AtMostOnceRounds  []float64 `json:"at_most_once_rounds"`
	BLMoveRounds      []float64 `json:"blmove_rounds"`
	BRPopRounds       []float64 `json:"brpop_rounds"`
}

// known is a figure that exists, rounded for reading.
func known(v float64) *float64 {
	v = round(v, digits(v))
	return &v
}

// digits keeps about four significant ones.
func digits(v float64) int {
	switch v = math.Abs(v); {
	case v >= 1000:
		return 0
	case v >= 10:
		return 2
	}
	return 4
}

func round(v float64, digits int) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	p := math.Pow10(digits)
	return math.Round(v*p) / p
}

// rate is n per second, 0 where no time went by.
func rate(n int64, d time.Duration) float64 {
	if d <= 0 {
		return 0
	}
	return float64(n) / d.Seconds()
}

// quotient is a ÷ b, or nothing where b is not above zero.
func quotient(a, b float64) *float64 {
	if b <= 0 {
		return nil
	}
	return known(a / b)
}

// median of values, which it leaves alone; 0 of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

func rounded(values []float64) []float64 {
	if values == nil {
		return nil
	}
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = *known(v)
	}
	return out
}
