// Package ledger holds the PostgreSQL side of Posthaste: the tables as
// numbered migrations, and the functions and views that are applied again
// whenever they changed. Everything here also works from psql alone.
package ledger

import "embed"

// Files holds bootstrap.sql, roles.sql, grants.sql and the folders migrations,
// functions and views. Package postgres says in which order they are applied.
//
//go:embed bootstrap.sql roles.sql grants.sql migrations/*.sql functions/*.sql views/*.sql
var Files embed.FS
