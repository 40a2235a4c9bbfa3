package bench

// NATSResult holds the figures of scenario nats. PerSecond, Ratio, ServerCPU and ClientCPU of the
// result are those of the messages that a worker handled.
type NATSResult struct {
	// Servers is the number of servers, each of which stores all messages.
	Servers  int       `json:"servers"`
	NATSWays []NATSWay `json:"nats_ways"`
	// IdleQueues is 0 if only one way was measured.
	//
	// IdlePulls is the number of pulls per second of a worker with IdleQueues queues that has nothing to
	// do. The percentages of one core are those of the client and of all servers.
	IdleQueues        int      `json:"idle_queues"`
	IdlePulls         float64  `json:"idle_pulls_per_second"`
	IdleClientPercent float64  `json:"idle_client_cpu_percent"`
	IdleServerPercent *float64 `json:"idle_server_cpu_percent"`
}

// NATSWay is one way to use the engine on NATS, and the same with the raw client on a stream with the
// same configuration. Figures are medians of the rounds, and the ratio is the median of the
// ratios in each round.
type NATSWay struct {
	Way          string    `json:"way"`
	PerSecond    float64   `json:"per_second"`
	RawPerSecond float64   `json:"raw_per_second"`
	Ratio        *float64  `json:"ratio_to_raw"`
	Rounds       []float64 `json:"rounds"`
	RawRounds    []float64 `json:"raw_rounds"`
	// CPU times are microseconds per message, those of the servers together.
	ServerCPU    *float64 `json:"server_cpu_us"`
	ClientCPU    *float64 `json:"client_cpu_us"`
	RawServerCPU *float64 `json:"raw_server_cpu_us"`
	RawClientCPU *float64 `json:"raw_client_cpu_us"`
}
