// Package bench measures the product as it is shipped: the real schema with all its columns
// and indexes, the real Client and Worker, one handler call per message.
//
// Every scenario compares within one run, because machines differ and are noisy: floor and
// measurement alternate in rounds, and a figure is the median of its rounds. Throughput is
// measured by wall clock from the first send to the last settle, draining included. A run
// creates its own databases and drops them at the end. The floor of flow has a second database
// with the same schema on the same server, and keeps its rows from round to round, as the flow
// does.
//
// Before pinned and telemetry, the embedded server uses the memory and the log files that these
// scenarios will use, which takes up to the run's duration in addition.
//
// Server CPU is the CPU time of the postmaster, of its living children and of those it has
// reaped, from /proc. So it is known only on Linux, and only if the server runs on this machine.
// It includes checkpointer, WAL writer and autovacuum. Client CPU is the result of getrusage
// for this process, or for the child processes of sender and worker. A proxy on the connection
// counts statements.
//
// Some scenarios start this program again, as sender, worker or HTTP server. The package
// recognizes such a process in its init function by the environment variable
// POSTHASTE_BENCH_ROLE, so it also works in test binaries.
package bench
