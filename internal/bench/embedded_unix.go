//go:build unix

package bench

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/posthaste-mq/posthaste/internal/devpg"
)

// embeddedSettings are the settings of a server that has the machine to itself. Durability
// has PostgreSQL's defaults: everything is on.
func embeddedSettings() map[string]string {
	return map[string]string{
		"shared_buffers":     fmt.Sprintf("%dMB", sharedBuffers(memory())>>20),
		"max_wal_size":       "8GB",
		"min_wal_size":       "8GB",
		"checkpoint_timeout": "15min",
		"max_connections":    "200",
	}
}

// sharedBuffers returns a quarter of the memory, as PostgreSQL's manual recommends for a
// dedicated server; 1 GiB if the memory is unknown, and at most 8 GiB.
func sharedBuffers(memory uint64) uint64 {
	if memory == 0 {
		return 1 << 30
	}
	return min(max(memory/4, 128<<20), 8<<30)
}

// start starts the embedded PostgreSQL with a temporary cluster.
func (s *server) start(ctx context.Context, r *run) (err error) {
	if s.dir, err = clusterDir(r.o.DataDir); err != nil {
		return err
	}
	embedded, err := devpg.Start(ctx, devpg.Config{
		DataDir: filepath.Join(s.dir, "postgres"), BinDir: r.o.PostgresBin, Version: r.o.PostgresVersion,
		Settings: embeddedSettings(), Ephemeral: true,
		Progress: func(stage string, done, total int64) {
			if total > 0 {
				stage = fmt.Sprintf("%s %d %%", stage, 100*done/total)
			}
			r.phase("PostgreSQL: " + stage)
		},
	})
	if err != nil {
		return err
	}
	s.url, s.stop = embedded.URL(), embedded.Stop
	return nil
}
