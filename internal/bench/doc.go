// Package bench measures what is shipped: the real schema with all its columns
// and indexes, the real Client and Worker, one handler call per message.
//
// Every scenario compares within one run, since machines differ and are noisy:
// floor and measurement alternate in rounds, and a figure is the median of its
// rounds. Throughput is wall clock from the first send to the last settle,
// draining included. The databases are the run's own, made for it and dropped
// at its end; the floor of flow lies in a second database with the same schema
// on the same server, and keeps its rows from round to round, as the flow's does.
//
// The bench's own server uses once, before pinned and telemetry, the memory and the
// log files that these will use, which takes up to the run's duration on top.
//
// Server CPU is that of the postmaster, of all its children that live, and of
// those it has reaped, from /proc: so it is known on Linux only, and only if
// the server runs on this machine. It counts checkpointer, WAL writer and
// autovacuum too. Client CPU is what getrusage says of this process, or of the
// processes of their own that sender and worker run in. Statements are counted
// by a proxy on the wire.
//
// Some scenarios start this program again, as sender, worker or HTTP server; the package
// recognises such a process in its init function by the environment variable
// POSTHASTE_BENCH_ROLE, and so works in test binaries too.
package bench
