package bench

// natsWays are the names of the ways.
var natsWays = []string{"singly", "gathered", "batches-10", "batches-100", "batches-1000", "handled"}

const (
	// natsOutstanding is the number of goroutines that send at the same time by a client, and of
	// messages that the raw client publishes without a confirmation.
	natsOutstanding = 1000
	// natsBatchers is the number of goroutines that send atomic batches.
	natsBatchers = 4
	// natsFetch is the number of messages in a fetch of the raw client.
	natsFetch = 100
)
