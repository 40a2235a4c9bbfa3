// Package chaos injects faults into everything around Posthaste for as long as requested, and
// then accounts for every message: `make chaos`.
//
// The rig runs real processes: the shipped program, senders and receivers of every kind, and a
// PostgreSQL or a Redis behind a proxy. Senders record an intent before each send and the
// answer after it. Receivers record each call before and after its effect. The rig records
// each fault and its target. Each writes to its own file (package history). The checker reads
// only those files: the state of the store is not evidence.
//
// Code for one engine is in postgres.go and redis.go, behind the interface store. All other
// code is shared.
//
// docs/project/chaos.md describes how to run it and how to read its report.
package chaos
