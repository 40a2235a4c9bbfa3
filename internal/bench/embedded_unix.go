//go:build unix

package bench

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/posthaste-mq/posthaste/internal/devpg"
)

// embeddedSettings are those of a server that this machine is for. Durability is
// left as PostgreSQL has it: everything on.
func embeddedSettings() map[string]string {
	return map[string]string{
		"shared_buffers":     fmt.Sprintf("%dMB", sharedBuffers(memory())>>20),
		"max_wal_size":       "8GB",
		"min_wal_size":       "8GB",
		"checkpoint_timeout": "15min",
		"max_connections":    "200",
	}
}

// sharedBuffers is a quarter of the memory, as PostgreSQL's manual advises for
// servers of their own; 1 GiB where the memory is unknown, and 8 GiB at most.
func sharedBuffers(memory uint64) uint64 {
	if memory == 0 {
		return 1 << 30
	}
	return min(max(memory/4, 128<<20), 8<<30)
}

// start starts the embedded PostgreSQL in a cluster that is thrown away.
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
