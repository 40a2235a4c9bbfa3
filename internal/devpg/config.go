//go:build unix

package devpg

import (
	"io"

	"github.com/posthaste-mq/posthaste"
)

// Config configures PostgreSQL. All fields except DataDir have defaults.
type Config struct {
	// Version is "14" or "18". If empty, it is the version of the cluster in DataDir, or "18"
	// for a new cluster. With BinDir it must be empty or the major version of those binaries.
	Version string
	// DataDir is the directory of the cluster, or of the note that says where the cluster is.
	// It is created if missing. Required unless Ephemeral.
	DataDir string
	// Port is the port on 127.0.0.1; 0 chooses a free one, which Restart keeps.
	Port int
	// User is the superuser created with the cluster, Password its password, and Database a
	// database; each is "posthaste" by default. The database's search_path is public unless it
	// was set to something else.
	User, Password, Database string
	// Settings are server parameters, as in postgresql.conf. All others have PostgreSQL's
	// defaults: commits are durable.
	Settings map[string]string
	// BinDir contains initdb and postgres, to use instead of fetching them.
	BinDir string
	// CacheDir stores downloads; "posthaste" in the user's cache directory by default.
	CacheDir string
	// Repository is the Maven repository to fetch from. If empty, it is the value of the
	// environment variable POSTHASTE_MAVEN_REPOSITORY, or else the public one.
	Repository string
	// Log receives PostgreSQL's log; nil discards it. One goroutine writes to it.
	Log io.Writer
	// Progress reports the progress of Start; total is 0 if it is unknown. It is called from
	// the goroutine that called Start.
	Progress func(stage string, done, total int64)
	// Ephemeral creates a temporary cluster: initdb does not sync it, and it is removed at
	// Stop, or by the guard when this process dies. DataDir is removed as well if it is then
	// empty. An empty DataDir means a new one in the temporary directory.
	Ephemeral bool
}

// The stages that [Config.Progress] reports, in order. The first two are skipped if the
// binaries exist, the third if the cluster exists.
const (
	StageFetch  = "fetch"  // done and total are bytes of the archive
	StageUnpack = "unpack" // done and total are bytes of the archive
	StageInit   = "init"   // a new cluster is created
	StageStart  = "start"  // PostgreSQL starts, and recovers if it was killed
)

// releases are the versions of io.zonky.test.postgres:embedded-postgres-binaries-* that
// are fetched for each major version. A new one needs its checksums in archive.go.
var releases = map[string]string{
	"14": "14.18.0",
	"18": "18.3.0",
}

func (c Config) withDefaults() (Config, error) {
	for _, f := range []*string{&c.User, &c.Password, &c.Database} {
		if *f == "" {
			*f = "posthaste"
		}
	}
	if c.Progress == nil {
		c.Progress = func(string, int64, int64) {}
	}
	if c.Log == nil {
		c.Log = io.Discard
	}
	if c.DataDir == "" && !c.Ephemeral {
		return c, posthaste.Invalidf("data_dir", "a data directory is required")
	}
	if c.Port < 0 || c.Port > 65535 {
		return c, posthaste.Invalidf("port", "port %d is not between 0 and 65535", c.Port)
	}
	if c.BinDir == "" && c.Version != "" && releases[c.Version] == "" {
		return c, posthaste.Invalidf("version", "there is no embedded PostgreSQL %q: the versions are 14 and 18", c.Version)
	}
	return c, nil
}
