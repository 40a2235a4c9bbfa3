package posthaste

import "time"

// Limits of every engine.
const (
	// MaxWordBytes bounds key, kind, reference, dedupe key and each term.
	MaxWordBytes = 255
	// MaxPriority is the last priority; 0 is the first.
	MaxPriority = 3
	// MaxDedupeWindow is the longest window of a dedupe key.
	MaxDedupeWindow = 365 * 24 * time.Hour
	// MaxHeaderBytes bounds all headers of a message together, names and values.
	MaxHeaderBytes = 16 << 10
	// MaxPayloadBytes is the most a queue's max_payload can be set to.
	MaxPayloadBytes = 32 << 20
	// MaxPlaces is the most deliveries one claim can hold.
	MaxPlaces = 4096
)
