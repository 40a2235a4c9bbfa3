package main

// Sending and working processes receive and answer lines of JSON; node/child.mjs implements
// the same protocol.

// order is the first line that a process receives.
type order struct {
	Product  string `json:"product"`
	Role     string `json:"role"` // install, send or work
	Scenario string `json:"scenario"`
	Row      string `json:"row"`
	URL      string `json:"url"`
	Queue    string `json:"queue"`
	Text     string `json:"text"` // of every message
	Batch    int    `json:"batch"`
	// Senders is the number of goroutines or asynchronous loops that send.
	Senders int `json:"senders"`
	// Limit is the number of waiting messages at which senders of batches pause.
	Limit int64 `json:"limit"`
	// Rate is the number of messages sent per second (latency).
	Rate float64 `json:"rate"`
}

const (
	roleInstall = "install"
	roleSend    = "send"
	roleWork    = "work"
)

// line is each later line that it receives. End of input means: stop.
type line struct {
	// Run says to send for this many ms and to answer with Sent.
	Run float64 `json:"run,omitempty"`
	// Handled is the number of messages that the worker has handled so far.
	Handled int64 `json:"handled,omitempty"`
	// Report asks for CPU, Handled and Samples, and clears the samples.
	Report bool `json:"report,omitempty"`
}

// report is a line of answer.
type report struct {
	Ready   bool   `json:"ready,omitempty"`
	Error   string `json:"error,omitempty"`
	Sent    *int64 `json:"sent,omitempty"`    // in the run that has ended
	Handled *int64 `json:"handled,omitempty"` // since the process started
	// CPU is the process's CPU time so far, in µs; only in answers to Report.
	CPU *float64 `json:"cpu,omitempty"`
	// Samples are durations in ns, from before the sending call until the handler starts
	// (latency).
	Samples []int64 `json:"samples,omitempty"`
}
