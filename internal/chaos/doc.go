// Package chaos breaks everything around Posthaste for as long as one likes,
// and then accounts for every message: `make chaos`.
//
// The rig runs real processes: the shipped program, senders and receivers of
// every kind, and a PostgreSQL or a Redis, with a proxy between them and it. Senders write
// an intent before each send and the answer after it, receivers write each call
// before and after its effect, and the rig writes whom it did what to; each to a
// file of its own (package history). The checker reads those files, and nothing
// else: what the store thinks of a message is no evidence.
//
// What is of one engine is in postgres.go and in redis.go, behind the interface
// store; all else is common.
//
// docs/chaos.md tells how it is run and how its report is read.
package chaos
