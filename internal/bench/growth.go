package bench

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste/postgres"
)

// TableGrowth is the state of one table, with its partitions, after a run.
type TableGrowth struct {
	Table string `json:"table"`
	// Bytes is the size of its rows, IndexBytes that of its indexes, at the end.
	Bytes      int64 `json:"bytes"`
	IndexBytes int64 `json:"index_bytes"`
	// GrownBytes is the growth of both during the run.
	GrownBytes int64 `json:"grown_bytes"`
	LiveRows   int64 `json:"live_rows"`
	DeadRows   int64 `json:"dead_rows"`
	// Updates and HotUpdates are the updates during the run. The latter wrote no index.
	Updates    int64 `json:"updates"`
	HotUpdates int64 `json:"hot_updates"`
	// Scanned is the number of rows, dead or not, that index and sequential scans read.
	Scanned int64 `json:"rows_read"`
}

// tableSizes returns the current state of the ledger's tables.
func tableSizes(ctx context.Context, url string) ([]TableGrowth, error) {
	conn, err := postgres.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, `
		select coalesce(p.relname, c.relname)::text, sum(pg_catalog.pg_relation_size(c.oid))::bigint, sum(pg_catalog.pg_indexes_size(c.oid))::bigint, 0::bigint,
		       coalesce(sum(s.n_live_tup), 0)::bigint, coalesce(sum(s.n_dead_tup), 0)::bigint, coalesce(sum(s.n_tup_upd), 0)::bigint, coalesce(sum(s.n_tup_hot_upd), 0)::bigint,
		       (coalesce(sum(s.seq_tup_read), 0) + coalesce(sum(s.idx_tup_fetch), 0))::bigint
		  from pg_catalog.pg_class c
		  left join pg_catalog.pg_inherits i on i.inhrelid = c.oid
		  left join pg_catalog.pg_class p on p.oid = i.inhparent
		  left join pg_catalog.pg_stat_all_tables s on s.relid = c.oid
		 where c.relnamespace = 'posthaste'::regnamespace and c.relkind = 'r'
		 group by 1`)
	if err != nil {
		return nil, fmt.Errorf("the tables' sizes cannot be read: %w", err)
	}
	sizes, err := pgx.CollectRows(rows, pgx.RowToStructByPos[TableGrowth])
	if err != nil {
		return nil, fmt.Errorf("the tables' sizes cannot be read: %w", err)
	}
	return sizes, nil
}

// grown returns the tables that have grown, in order of growth.
func grown(before, after []TableGrowth) []TableGrowth {
	list := []TableGrowth{}
	for _, a := range after {
		i := slices.IndexFunc(before, func(b TableGrowth) bool { return b.Table == a.Table })
		if i >= 0 {
			b := before[i]
			a.GrownBytes = a.Bytes + a.IndexBytes - b.Bytes - b.IndexBytes
			a.Updates, a.HotUpdates, a.Scanned = a.Updates-b.Updates, a.HotUpdates-b.HotUpdates, a.Scanned-b.Scanned
		}
		if a.GrownBytes > 0 {
			list = append(list, a)
		}
	}
	slices.SortFunc(list, func(a, b TableGrowth) int { return cmp.Compare(b.GrownBytes, a.GrownBytes) })
	return list
}
