package postgres

import (
	"context"
	"io/fs"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
)

// Remembers counts the entries that e keeps in memory about a worker's claims.
func (e *Engine) Remembers(worker posthaste.WorkerID) int {
	n := 0
	if _, ok := e.numbers.Load(worker); ok {
		n++
	}
	e.paces.Range(func(key, _ any) bool {
		if key.(paceKey).worker == worker {
			n++
		}
		return true
	})
	return n
}

// ClockFinding exports clockFinding.
var ClockFinding = clockFinding

// MigrateTo migrates the schema to that of a program with these files.
func MigrateTo(ctx context.Context, conn *pgx.Conn, files fs.FS, opts MigrateOptions) error {
	s, err := readSource(files)
	if err != nil {
		return err
	}
	return s.migrate(ctx, conn, opts)
}
