//go:build unix

// Package devpg runs a real PostgreSQL for development and tests: it fetches the binaries
// once, creates a cluster, starts it and shuts it down.
//
// # Binaries
//
// PostgreSQL 14 and 18 are fetched as archives from Maven Central, built by
// https://github.com/zonkyio/embedded-postgres-binaries. The archive is kept in
// [Config.CacheDir] and checked against a checksum, so a second start needs no
// network. The environment variable POSTHASTE_MAVEN_REPOSITORY names a mirror.
// [Config.BinDir] names a directory of other binaries to use instead. The fetched
// builds have no lz4 and no client programs.
//
// # Root
//
// PostgreSQL refuses to run as root. A process with root's privileges starts initdb and
// postgres as the owner of the cluster, or for a new cluster as the user "posthaste" if it
// exists, otherwise as "nobody". If that user cannot reach [Config.DataDir] (below a folder
// that only root can enter), the cluster is in /var/lib/posthaste or, if that cannot be
// created, in the temporary directory. A file in DataDir records the location.
// [Server.DataDir] returns it, and [Remove] removes the cluster wherever it is. The location
// of unpacked binaries is chosen in the same way.
//
// # Crashes
//
// PostgreSQL runs in its own session, so that a Ctrl-C in the terminal does not reach it
// before its owner stops it. If the owner dies without stopping it, a guard stops it. The
// guard is a second process of the same program: package devpg recognizes it in its init
// function by the environment variable POSTHASTE_DEVPG_GUARD, so it also works in test
// binaries. If the guard was killed as well, PostgreSQL keeps running until the next [Start]
// in the same DataDir. That stops it and starts it again instead of adopting it, because its
// port and settings may differ, and only a child process reports its end. Stale lock files and
// orphaned backends are removed as well.
package devpg
