package main

// Result is the result of a run.
type Result struct {
	Machine         Machine `json:"machine"`
	DurationSeconds float64 `json:"duration_seconds"`
	Rounds          int     `json:"rounds"`
	// Missing says why products have no figures.
	Missing map[string]string `json:"missing,omitempty"`
	Cells   []Cell            `json:"cells"`
}

// Machine is the machine of the run.
type Machine struct {
	Cores           int               `json:"cores"`
	PostgresVersion string            `json:"postgres_version"`
	Embedded        bool              `json:"embedded"`
	Settings        map[string]string `json:"settings"`
}

// Cell is one product in one setting of one scenario, in one round. Figures that were not
// measured are null.
type Cell struct {
	Scenario string `json:"scenario"`
	Product  string `json:"product"`
	Version  string `json:"version"`
	Row      string `json:"row,omitempty"`
	Round    int    `json:"round"`
	// Sent and Handled are the messages, or transactions, of the measured time.
	Sent    int64 `json:"sent"`
	Handled int64 `json:"handled"`
	// SentPerSecond counts until the last commit, HandledPerSecond until 99 % of the
	// messages were handled.
	SentPerSecond    *float64 `json:"sent_per_second"`
	HandledPerSecond *float64 `json:"handled_per_second"`
	// Server and Client are µs of CPU time per message: of PostgreSQL, and of sender and
	// worker together.
	Server *float64 `json:"server_us"`
	Client *float64 `json:"client_us"`
	// Others is the CPU usage of other programs, in percent of all processors.
	Others *float64 `json:"others_percent"`
	// Milliseconds from before the sending call until the handler starts (latency).
	P50 *float64 `json:"p50_ms,omitempty"`
	P99 *float64 `json:"p99_ms,omitempty"`
	Max *float64 `json:"max_ms,omitempty"`
	// The cost of an idle worker: percent of one processor, and statements and transactions
	// per second in its database.
	IdleServer   *float64 `json:"idle_server_percent,omitempty"`
	IdleClient   *float64 `json:"idle_client_percent,omitempty"`
	Statements   *float64 `json:"statements_per_second,omitempty"`
	Transactions *float64 `json:"transactions_per_second,omitempty"`
	// Remark says why figures are doubtful; Error why there are none.
	Remark string `json:"remark,omitempty"`
	Error  string `json:"error,omitempty"`
}

func known(v float64) *float64 { return &v }

// per divides. It returns nil if n is 0.
func per(v float64, n float64) *float64 {
	if n <= 0 {
		return nil
	}
	return known(v / n)
}

// mean returns the mean of the known values.
func mean(values []*float64) *float64 {
	sum, n := 0.0, 0.0
	for _, v := range values {
		if v != nil {
			sum += *v
			n++
		}
	}
	return per(sum, n)
}
