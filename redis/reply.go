package redis

import (
	"fmt"
	"strconv"
	"time"
)

// unexpected is the error for a reply that no script gives.
func unexpected(what string, reply any) error {
	return fmt.Errorf("redis answered %s with %.200v", what, reply)
}

// list returns a reply that must be a list of at least n values.
func list(what string, reply any, n int) ([]any, error) {
	all, ok := reply.([]any)
	if !ok || len(all) < n {
		return nil, unexpected(what, reply)
	}
	return all, nil
}

// str returns a reply that is a string, or "".
func str(reply any) string { s, _ := reply.(string); return s }

// parseMicros parses a time or duration in a reply. ok is false if it has none.
func parseMicros(s string) (n int64, ok bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

func fromMicros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// tickIn parses the time until the next tick in a reply. It returns 0 if the reply has none.
func tickIn(s string) time.Duration {
	if n, ok := parseMicros(s); ok {
		return max(1, fromMicros(n))
	}
	return 0
}
