package bench

// Result is the result of one run. Figures that do not apply to the scenario, or are unknown on
// this machine, are null or absent in JSON.
type Result struct {
	Scenario string `json:"scenario"`
	// Valid reports whether the figures can be trusted. If not, Reason says why.
	Valid  bool   `json:"valid"`
	Reason string `json:"reason,omitempty"`
	// PerSecond is messages per second, and Ratio the ratio that the scenario is about.
	PerSecond *float64 `json:"per_second"`
	Ratio     *float64 `json:"ratio"`
	// ServerCPU and ClientCPU are microseconds of CPU time per message.
	ServerCPU *float64 `json:"server_cpu_us_per_message"`
	ClientCPU *float64 `json:"client_cpu_us_per_message"`
	// Messages is the number of measured messages.
	Messages int64 `json:"messages"`
	// Batch is the number of messages in one Send, if the options set it.
	Batch int `json:"batch,omitempty"`
	// Senders is the number of goroutines that sent batches.
	Senders int `json:"senders,omitempty"`
	// DurationSeconds is the time of the whole run.
	DurationSeconds float64 `json:"duration_seconds"`
	Machine         Machine `json:"machine"`
	// LeftBehind are the databases of the run that could not be dropped.
	LeftBehind []string `json:"left_behind,omitempty"`

	*FlowResult
	*SingleResult
	*SendingResult
	*SteadyResult
	*LatencyResult
	*PinnedResult
	*BacklogResult
	*OrderedResult
	*KindsResult
	*FlowComparison
	*IdleResult
	*RelayResult
	*TelemetryResult
	*PipelineResult
	*RedisResult
	*NATSResult
}

// Machine describes the machine and the server.
type Machine struct {
	Cores int `json:"cores"`
	// FsyncPerSecond is how many writes of 8 KiB per second can be synced, one after the other,
	// in the directory of the database. Null if it is unknown.
	FsyncPerSecond  *float64 `json:"fsync_per_second"`
	PostgresVersion string   `json:"postgres_version,omitempty"`
	RedisVersion    string   `json:"redis_version,omitempty"`
	NATSVersion     string   `json:"nats_version,omitempty"`
	// Embedded reports that the run started PostgreSQL, Redis or NATS itself.
	Embedded bool `json:"embedded"`
	// Settings are the server's settings that affect durability and speed.
	Settings map[string]string `json:"settings"`
}

// FlowResult holds the figures of scenario flow.
type FlowResult struct {
	// FloorPerSecond is rows per second by COPY alone, or on Redis messages pushed to a list
	// alone, with the best number of connections.
	FloorPerSecond   float64 `json:"floor_per_second"`
	FloorConnections int     `json:"floor_connections"`
	// Rounds and FloorRounds are the figures of each round.
	Rounds      []float64 `json:"rounds"`
	FloorRounds []float64 `json:"floor_rounds"`
	// FloorServerCPU is the floor's server CPU time per row, in microseconds.
	FloorServerCPU *float64 `json:"floor_server_cpu_us_per_message"`
}

// SingleResult holds the figures of scenario single.
type SingleResult struct {
	PlainPerSecond   float64   `json:"plain_per_second"`
	HandledPerSecond float64   `json:"handled_per_second"`
	SingleRounds     []float64 `json:"single_rounds"`
	PlainRounds      []float64 `json:"plain_rounds"`
	PlainServerCPU   *float64  `json:"plain_server_cpu_us_per_message"`
}

// SendingResult holds the figures of scenarios transactional and senders. PerSecond and the CPU
// time of the result are those of one way with a worker. In transactional it is the way by SQL,
// compared with transactions that insert the payload into a table. In senders it is the way by
// HTTP, compared with Engine.Send.
type SendingResult struct {
	Connections int `json:"connections"`
	SentTo      int `json:"queues_sent_to"`
	// WorkerProcesses handle the messages.
	WorkerProcesses int `json:"worker_processes"`
	// ArrayOf is the number of messages in an array that is sent by HTTP.
	ArrayOf int `json:"array_of,omitempty"`
	// AskedPerSecond is the requested rate; 0 for as fast as possible.
	AskedPerSecond float64 `json:"asked_per_second"`
	// MostNotifications is the maximum over the ways with more than 200 sends per second.
	// MostLockWaits is the maximum over all ways.
	MostNotifications float64      `json:"most_notifications_per_second"`
	MostLockWaits     *float64     `json:"most_lock_wait_share"`
	Ways              []SendingWay `json:"ways"`
}

// SendingWay is one kind of transaction or call. Figures are medians of the rounds, and a ratio
// is the median of the ratios in each round.
type SendingWay struct {
	Way string `json:"way"`
	// Worker is whether workers handle the messages; empty if the way sends none.
	Worker string `json:"worker,omitempty"`
	// HTTP reports that the messages go through an HTTP server.
	HTTP      bool      `json:"http,omitempty"`
	PerSecond float64   `json:"per_second"`
	Rounds    []float64 `json:"rounds"`
	// Messages is the number of sent messages, or of transactions in ways without messages.
	Messages int64 `json:"messages"`
	// RatioToRow compares with inserting the business row alone, RatioToPayloads with also
	// inserting the payload into a second table.
	RatioToRow      *float64 `json:"ratio_to_row_alone,omitempty"`
	RatioToPayloads *float64 `json:"ratio_to_two_rows,omitempty"`
	// RatioToPlain compares with inserting the payload into a table, or pushing it to a list of
	// Redis. RatioToEngine compares with Engine.Send, by messages.
	RatioToPlain  *float64 `json:"ratio_to_plain,omitempty"`
	RatioToEngine *float64 `json:"ratio_to_engine_send,omitempty"`
	// RatioToNobody compares a way with a worker to the same way without one.
	RatioToNobody *float64 `json:"ratio_to_no_worker,omitempty"`
	// CPU times are microseconds per message: of PostgreSQL or Redis, including the handling if
	// there is a worker, and of the processes of the senders, the HTTP server and the workers.
	ServerCPU     *float64 `json:"server_cpu_us"`
	ClientCPU     *float64 `json:"client_cpu_us"`
	HTTPServerCPU *float64 `json:"http_server_cpu_us,omitempty"`
	WorkerCPU     *float64 `json:"worker_cpu_us,omitempty"`
	// ServerCPUAbove is the server's CPU time above that for the payload in a second table.
	ServerCPUAbove *float64 `json:"server_cpu_us_above_two_rows,omitempty"`
	// Handled is the number of messages per second that were sent and settled.
	Handled *float64 `json:"handled_per_second,omitempty"`
	// Notifications is the number per second on the doorbell's channel, or on the channels of
	// Redis. LockWaits is the share of the active senders that waited for the lock of
	// PostgreSQL's notifications. Sampled is the number of samples of active senders.
	Notifications float64  `json:"notifications_per_second"`
	LockWaits     *float64 `json:"lock_wait_share"`
	Sampled       int64    `json:"senders_sampled"`
	// AtOnset is the number of notifications at the beginning of each round, before the
	// measurement.
	AtOnset []int64 `json:"notifications_at_onset"`
}

// SteadyResult holds the figures of scenario flow with slots that turn over.
type SteadyResult struct {
	// LiveSlots is the number of slots of the ring that held rows at the beginning.
	LiveSlots   int `json:"live_slots"`
	Truncations int `json:"truncations"`
	// Claims are all claims that handed messages out.
	Claims ClaimTimes `json:"claims"`
	// AfterTruncation are those between the start of a round of upkeep that truncated a slot
	// and 200 ms after its end. AfterUpkeep are those during other rounds of upkeep.
	AfterTruncation ClaimTimes `json:"claims_after_truncation"`
	AfterUpkeep     ClaimTimes `json:"claims_after_other_upkeep"`
	// WorstOfEach is the longest claim of each truncation, in milliseconds.
	WorstOfEach []float64 `json:"worst_of_each_truncation_ms"`
}

// ClaimTimes are the times of claims, in milliseconds.
type ClaimTimes struct {
	Claims int     `json:"claims"`
	P50    float64 `json:"p50_ms"`
	P99    float64 `json:"p99_ms"`
	Max    float64 `json:"max_ms"`
}

// LatencyResult holds the figures of scenario latency, in milliseconds.
type LatencyResult struct {
	P50        float64 `json:"p50_ms"`
	P95        float64 `json:"p95_ms"`
	P99        float64 `json:"p99_ms"`
	Max        float64 `json:"max_ms"`
	Rate       float64 `json:"rate"`
	OpenSender bool    `json:"open_sender"`
	Duplicates int64   `json:"duplicates"`
}

// PinnedResult holds the figures of scenario pinned.
type PinnedResult struct {
	FirstPerSecond float64 `json:"first_per_second"`
	LastPerSecond  float64 `json:"last_per_second"`
	// Sixths is the rate of each sixth of the run.
	Sixths []float64 `json:"sixths_per_second"`
	// SixthsCPU is the server's CPU time per message in each of them, in microseconds. A busy
	// machine affects it less than the rate. Null if it is unknown.
	SixthsCPU []float64 `json:"sixths_server_cpu_us_per_message"`
	// CPURatio compares the CPU time per message of the last sixth to that of the first.
	CPURatio *float64 `json:"sixths_cpu_ratio"`
	// Subscriptions is the number of subscriptions. Each settled delivery counts as a share of
	// its message: a third with three subscriptions.
	Subscriptions int `json:"subscriptions"`
	// Keyed is the kind of queue, limits or ordered; empty for a plain one.
	Keyed string `json:"keyed,omitempty"`
	// PinnedKeys is the number of keys of the messages; 0 for a plain queue.
	PinnedKeys int `json:"pinned_keys,omitempty"`
	// Grown are the tables that grew during the run, in order of growth.
	Grown []TableGrowth `json:"grown"`
}

// OrderedResult holds the figures of scenario ordered.
type OrderedResult struct {
	// Keys is the number of keys of the messages.
	Keys int `json:"keys"`
}

// KindsResult holds the figures of scenario kinds.
type KindsResult struct {
	// Kinds is the number of kinds of the messages. The worker has a handler for each.
	Kinds int `json:"kinds"`
}

// FlowComparison compares a flow with that through a plain queue in the same run (ordered, kinds).
type FlowComparison struct {
	// FlowPerSecond is the flow through the plain queue.
	FlowPerSecond float64 `json:"flow_per_second"`
	// OwnRounds and FlowRounds are the figures of each round.
	OwnRounds  []float64 `json:"own_rounds"`
	FlowRounds []float64 `json:"flow_rounds"`
	// FlowServerCPU and FlowClientCPU are the plain queue's CPU time per message, in
	// microseconds.
	FlowServerCPU *float64 `json:"flow_server_cpu_us_per_message"`
	FlowClientCPU *float64 `json:"flow_client_cpu_us_per_message"`
	// CPURatio compares the CPU time per message, of server and client together, to that of
	// the plain queue. Null if it is unknown.
	CPURatio *float64 `json:"flow_cpu_ratio"`
}

// BacklogResult holds the figures of scenario backlog.
type BacklogResult struct {
	Waiting        int     `json:"waiting"`
	EmptyPerSecond float64 `json:"empty_per_second"`
	// FullRounds and EmptyRounds are the figures of each round. The first and the last round
	// are those of the empty queue.
	FullRounds  []float64 `json:"backlog_rounds"`
	EmptyRounds []float64 `json:"empty_rounds"`
}

// TelemetryResult holds the figures of scenario telemetry. The ratio is that of
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

// TelemetryCost is the cost of telemetry for one kind of traffic. Ratios are medians of the
// ratios to the same turns without telemetry, which a busy machine affects less.
type TelemetryCost struct {
	PerSecond float64 `json:"per_second"`
	Ratio     float64 `json:"ratio"`
	// CPU is the CPU time of server and client together, in microseconds. CPURatio is null if
	// it is unknown.
	CPU      float64  `json:"cpu_us_per_message"`
	CPURatio *float64 `json:"cpu_ratio"`
}

// IdleResult holds the figures of scenario idle. Statements are commands on Redis.
type IdleResult struct {
	Queues              int     `json:"queues"`
	StatementsPerSecond float64 `json:"statements_per_second"`
	// CPUPercent is the CPU time of the worker's process, in percent of one core.
	CPUPercent float64 `json:"cpu_percent"`
	// ServerCPUPercent is that of the whole server.
	ServerCPUPercent *float64 `json:"server_cpu_percent"`
	RSSMB            float64  `json:"rss_mb"`
	Statements       int64    `json:"statements"`
	MeasuredSeconds  float64  `json:"measured_seconds"`
}

// confirmRate is the number of messages per second with which scenario relay measures confirms.
const confirmRate = 50

// RelayResult holds the figures of scenario relay.
type RelayResult struct {
	Broker string `json:"broker"`
	// QueueType is the type of RabbitMQ's queue.
	QueueType string `json:"queue_type,omitempty"`
	// CeilingPerSecond is the throughput of the broker's client alone, confirmed, with the best
	// numbers of outstanding messages and connections.
	CeilingPerSecond   float64 `json:"broker_ceiling_per_second"`
	CeilingOutstanding int     `json:"ceiling_outstanding"`
	CeilingConnections int     `json:"ceiling_connections"`
	// ConfirmP50 and ConfirmP99 are the times from a message's commit to the broker's confirm,
	// in milliseconds, at 50 messages per second.
	ConfirmP50 float64 `json:"confirm_p50_ms"`
	ConfirmP99 float64 `json:"confirm_p99_ms"`
}

// PipelineResult holds the figures of scenario pipeline.
type PipelineResult struct {
	// PerMinute is the number of notifications per minute, from the start of the relay to the
	// last settle.
	PerMinute float64 `json:"per_minute"`
	// Consumers receive chunks from the broker, each with HandlersEach handlers.
	Consumers    int     `json:"consumers"`
	HandlersEach int     `json:"handlers_each"`
	HandlerMS    float64 `json:"handler_ms"`
	ChunkSize    int     `json:"chunk_size"`
	// Inbox is the store of the handlers' inbox.
	Inbox string `json:"inbox"`
}

// loopConnections is the number of connections of the loops of scenario redis.
const loopConnections = 50

// RedisResult holds the figures of scenario redis. PerSecond, ServerCPU and
// ClientCPU of the result are those of an at-least-once queue.
type RedisResult struct {
	AtMostOncePerSecond float64 `json:"at_most_once_per_second"`
	// BLMovePerSecond and BRPopPerSecond are the rates of loops on 50 connections without
	// pipelining.
	BLMovePerSecond float64 `json:"blmove_per_second"`
	BRPopPerSecond  float64 `json:"brpop_per_second"`
	// AtLeastOnceRatio compares with BLMOVE and LREM, AtMostOnceRatio with BRPOP.
	AtLeastOnceRatio *float64 `json:"at_least_once_ratio"`
	AtMostOnceRatio  *float64 `json:"at_most_once_ratio"`
	// CPU times are microseconds per message. Null if they are unknown.
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
