//go:build unix

// Package devpg runs a real PostgreSQL for development and tests: it fetches
// the binaries once, makes a cluster, starts it, and stops it in order.
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
// PostgreSQL refuses to run as root. A process with root's rights starts
// initdb and postgres as the owner of the cluster, or for a new cluster as the
// user "posthaste" if there is one, else as "nobody". Where that user cannot
// reach [Config.DataDir] (below a folder that only root can enter), the cluster
// lies in /var/lib/posthaste or, where that cannot be made, in the temporary
// directory. A file in DataDir remembers the place, [Server.DataDir] tells it,
// and [Remove] removes it wherever it is. Unpacked binaries are placed alike.
//
// # Death
//
// PostgreSQL runs in a session of its own, so a Ctrl-C in the terminal does not
// reach it before its owner stops it. If the owner dies without stopping it, a
// guard stops it: a second process of the same program, which package devpg
// recognises in its init function by the environment variable
// POSTHASTE_DEVPG_GUARD and which therefore works in test binaries too. If the
// guard was killed as well, PostgreSQL lives on until the next [Start] in the
// same DataDir, which stops it and starts it anew rather than adopting it: its
// port and settings may be others now, and only a child tells of its death.
// Stale lock files and orphaned backends are cleared on the way.
package devpg
