package main

// Processes that send or work are told and tell lines of JSON; node/child.mjs speaks
// the same.

// order is the first line that such a process is told.
type order struct {
	Product  string `json:"product"`
	Role     string `json:"role"` // install, send or work
	Scenario string `json:"scenario"`
	Row      string `json:"row"`
	URL      string `json:"url"`
	Queue    string `json:"queue"`
	Text     string `json:"text"` // of every message
	Batch    int    `json:"batch"`
	// Senders is how many goroutines or asynchronous loops send.
	Senders int `json:"senders"`
	// Limit is how many messages may wait before senders of batches pause.
	Limit int64 `json:"limit"`
	// Rate is how many messages are sent a second (latency).
	Rate float64 `json:"rate"`
}

const (
	roleInstall = "install"
	roleSend    = "send"
	roleWork    = "work"
)

// line is each further line that it is told. Its end of input means: stop.
type line struct {
	// Run says to send for so many ms, and to answer with Sent.
	Run float64 `json:"run,omitempty"`
	// Handled is how many messages the worker has handled so far.
	Handled int64 `json:"handled,omitempty"`
	// Report asks for CPU, Handled and Samples, and forgets the samples.
	Report bool `json:"report,omitempty"`
}

// report is a line that it answers.
type report struct {
	Ready   bool   `json:"ready,omitempty"`
	Error   string `json:"error,omitempty"`
	Sent    *int64 `json:"sent,omitempty"`    // in the run that has ended
	Handled *int64 `json:"handled,omitempty"` // since the process began
	// CPU is the process's CPU time so far, in µs; only in answers to Report.
	CPU *float64 `json:"cpu,omitempty"`
	// Samples are ns from before the sending call to the handler (latency).
	Samples []int64 `json:"samples,omitempty"`
}
