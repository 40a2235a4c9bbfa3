//go:build unix

package bench

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/posthaste-mq/posthaste/internal/devpg"
)

// embeddedSettings are those of a server of some size. Durability is left as
// PostgreSQL has it: everything on.
var embeddedSettings = map[string]string{
	"shared_buffers":     "1GB",
	"max_wal_size":       "8GB",
	"checkpoint_timeout": "15min",
	"max_connections":    "100",
}

// start starts the embedded PostgreSQL in a cluster that is thrown away.
func (s *server) start(ctx context.Context, r *run) (err error) {
	if s.dir, err = clusterDir(r.o.DataDir); err != nil {
		return err
	}
	embedded, err := devpg.Start(ctx, devpg.Config{
		DataDir: filepath.Join(s.dir, "postgres"), BinDir: r.o.PostgresBin, Version: r.o.PostgresVersion,
		Settings: embeddedSettings, Ephemeral: true,
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
