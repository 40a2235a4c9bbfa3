package sqlimport

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
)

// preset is a known product.
type preset struct {
	// schema is the usual schema of its tables. Empty means the one in which the search path
	// finds table.
	schema string
	// table is a table that it always has.
	table string
	// sources returns its tables with jobs.
	sources func(ctx context.Context, p *product) ([]*source, error)
}

var presets = map[string]preset{
	"graphile-worker": {schema: "graphile_worker", table: "_private_jobs", sources: graphileWorker},
	"oban":            {table: "oban_jobs", sources: oban},
	"pg-boss":         {schema: "pgboss", table: "job", sources: pgBoss},
	"pgmq":            {schema: "pgmq", table: "meta", sources: pgmq},
	"river":           {table: "river_job", sources: river},
}

// Presets returns the names of the presets.
func Presets() []string { return slices.Sorted(maps.Keys(presets)) }

// product is a product in a database.
type product struct {
	conn   *pgx.Conn
	schema string
	held   bool // import jobs that a worker holds, too
}

// sources returns the tables with jobs.
func (i *importer) sources(ctx context.Context) ([]*source, error) {
	if i.Preset == "" {
		trimmed := strings.TrimRight(i.Query, "; \t\r\n")
		return []*source{{name: trimmed + "\x00" + i.Done, query: trimmed, lock: "\n" + i.Lock, done: i.Done}}, nil
	}
	known, ok := presets[i.Preset]
	if !ok {
		return nil, posthaste.Invalidf("preset", "unknown preset %q; expected one of %s", i.Preset, strings.Join(Presets(), ", "))
	}
	p := &product{conn: i.conn, schema: i.Schema, held: i.Held}
	if err := p.find(ctx, known); err != nil {
		return nil, err
	}
	return known.sources(ctx, p)
}

// find finds the schema of a product.
func (p *product) find(ctx context.Context, known preset) error {
	name := known.table
	switch {
	case p.schema != "":
		name = p.quoted(known.table)
	case known.schema != "":
		p.schema = known.schema
		name = p.quoted(known.table)
	}
	err := p.conn.QueryRow(ctx, `select n.nspname from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
		where c.oid = pg_catalog.to_regclass($1)`, name).Scan(&p.schema)
	if errors.Is(err, pgx.ErrNoRows) {
		return &posthaste.Error{Code: posthaste.CodeNotFound, Field: "schema", Message: fmt.Sprintf("table %s not found", name),
			Hint: "name the schema of its tables with --schema, and their database with --from"}
	}
	return err
}

// quoted returns a table with its schema.
func (p *product) quoted(table string) string { return pgx.Identifier{p.schema, table}.Sanitize() }

// column returns the expression of a column that some versions of the product lack, with its
// alias, or else.
func (p *product) column(ctx context.Context, table, alias, column, missing string) (string, error) {
	var exists bool
	err := p.conn.QueryRow(ctx, "select exists (select from pg_catalog.pg_attribute where attrelid = pg_catalog.to_regclass($1) and attname = $2 and not attisdropped)",
		p.quoted(table), column).Scan(&exists)
	if exists {
		return alias + "." + column, err
	}
	return missing, err
}

// states returns the states of waiting jobs as a list of SQL, with those of running jobs if they
// are imported, too.
func (p *product) states(running string, waiting ...string) string {
	if p.held {
		waiting = append(waiting, running)
	}
	return "('" + strings.Join(waiting, "', '") + "')"
}

// river returns the table of River. Pending jobs wait for others in workflows.
func river(_ context.Context, p *product) ([]*source, error) {
	states := p.states("running", "available", "scheduled", "retryable")
	return []*source{{
		name: p.quoted("river_job"),
		query: `select j.id, j.queue, j.kind, j.args as payload, j.metadata as headers, j.tags as terms, j.scheduled_at as send_at,
			j.priority - 1 as priority, j.attempt, least(greatest(j.max_attempts - j.attempt, 1), 1000) as max_attempts, j.created_at,
			to_jsonb(j.errors) -> -1 ->> 'error' as error
			from ` + p.quoted("river_job") + ` as j where j.state in ` + states + ` order by j.id`,
		lock: " for update of j skip locked",
		done: "delete from " + p.quoted("river_job") + " where id = any($1)",
		held: "select count(*) from " + p.quoted("river_job") + " where finalized_at is null and state not in " + states,
	}}, nil
}

// oban returns the table of Oban. Its times have no zone and are in UTC. Its errors are an array of
// JSON in the table of Oban for Elixir, and a JSON array in that of Oban for Python.
func oban(_ context.Context, p *product) ([]*source, error) {
	states := p.states("executing", "available", "scheduled", "retryable")
	return []*source{{
		name: p.quoted("oban_jobs"),
		query: `select j.id, j.queue, j.worker as kind, j.args as payload, j.meta as headers, j.tags as terms, j.scheduled_at at time zone 'UTC' as send_at,
			least(j.priority, 3) as priority, j.attempt, least(greatest(j.max_attempts - j.attempt, 1), 1000) as max_attempts, j.inserted_at at time zone 'UTC' as created_at,
			to_jsonb(j.errors) -> -1 ->> 'error' as error
			from ` + p.quoted("oban_jobs") + ` as j where j.state in ` + states + ` order by j.id`,
		lock: " for update of j skip locked",
		done: "delete from " + p.quoted("oban_jobs") + " where id = any($1)",
		held: "select count(*) from " + p.quoted("oban_jobs") + " where state not in ('completed', 'discarded', 'cancelled') and state not in " + states,
	}}, nil
}

// pgBoss returns the jobs of each queue of pg-boss. Ids are unique in a queue. Jobs that depend on
// others, and those on which others depend, stay.
func pgBoss(ctx context.Context, p *product) ([]*source, error) {
	queues, err := p.names(ctx, "select name from "+p.quoted("queue")+" order by name")
	if err != nil {
		return nil, err
	}
	optional := map[string]string{"group_id": "null::text", "policy": "null::text", "blocked": "false", "blocking": "false"}
	for name, missing := range optional {
		if optional[name], err = p.column(ctx, "job", "j", name, missing); err != nil {
			return nil, err
		}
	}
	states := p.states("active", "created", "retry")
	free := "j.state in " + states + " and not " + optional["blocked"] + " and not " + optional["blocking"]
	// pg-boss counts a retry when it hands the job out again, not when it fails.
	const attempts = "(j.retry_count + (j.state <> 'created')::int)"
	var all []*source
	for _, queue := range queues {
		in := "j.name = " + literal(queue)
		all = append(all, &source{
			name: p.quoted("job") + "/" + queue,
			query: `select j.id, j.name as queue, j.name as kind, j.data as payload, j.start_after as send_at,
				case when j.priority > 0 then 0 when j.priority = 0 then 1 else 2 end as priority,
				` + attempts + ` as attempt, least(greatest(j.retry_limit + 1 - ` + attempts + `, 1), 1000) as max_attempts, j.created_on as created_at,
				case when j.state = 'retry' then coalesce(j.output ->> 'message', j.output::text) end as error,
				jsonb_build_object('singleton-key', j.singleton_key) as headers,
				coalesce(` + optional["group_id"] + `, case when ` + optional["policy"] + ` = 'key_strict_fifo' then j.singleton_key end) as key
				from ` + p.quoted("job") + ` as j where ` + in + ` and ` + free + ` order by j.created_on, j.id`,
			lock: " for update of j skip locked",
			done: "delete from " + p.quoted("job") + " as j where " + in + " and j.id = any($1)",
			held: "select count(*) from " + p.quoted("job") + " as j where " + in + " and j.state in ('created', 'retry', 'active') and not (" + free + ")",
		})
	}
	return all, nil
}

// graphileWorker returns the table of graphile-worker. All of its jobs are in one table and go to
// the queue "default"; its named queues, whose jobs run one after the other, become keys.
func graphileWorker(_ context.Context, p *product) ([]*source, error) {
	free := "j.locked_at is null and j.attempts < j.max_attempts"
	if p.held {
		free = "(j.locked_at is not null or j.attempts < j.max_attempts)"
	}
	return []*source{{
		name: p.quoted("_private_jobs"),
		query: `select j.id, 'default' as queue, t.identifier as kind, j.payload, j.run_at as send_at, least(greatest(j.priority, 0), 3) as priority,
			j.attempts as attempt, least(greatest(j.max_attempts - j.attempts, 1), 1000) as max_attempts, q.queue_name as key, j.key as unique_key,
			j.created_at, j.last_error as error
			from ` + p.quoted("_private_jobs") + ` as j join ` + p.quoted("_private_tasks") + ` as t on t.id = j.task_id
			left join ` + p.quoted("_private_job_queues") + ` as q on q.id = j.job_queue_id where ` + free + ` order by j.id`,
		lock: " for update of j skip locked",
		done: "delete from " + p.quoted("_private_jobs") + " where id = any($1)",
		held: "select count(*) from " + p.quoted("_private_jobs") + " as j where (j.locked_at is not null or j.attempts < j.max_attempts) and not (" + free + ")",
	}}, nil
}

// pgmq returns the tables of pgmq, one for each queue. A message that was read is held until its
// visibility timeout ends.
func pgmq(ctx context.Context, p *product) ([]*source, error) {
	queues, err := p.names(ctx, "select queue_name from "+p.quoted("meta")+" order by queue_name")
	if err != nil {
		return nil, err
	}
	var all []*source
	for _, queue := range queues {
		table := "q_" + strings.ToLower(queue)
		headers, err := p.column(ctx, table, "j", "headers", "null::jsonb")
		if err != nil {
			return nil, err
		}
		free := "(j.read_ct = 0 or j.vt <= clock_timestamp())"
		if p.held {
			free = "true"
		}
		all = append(all, &source{
			name: p.quoted(table),
			query: `select j.msg_id as id, ` + literal(queue) + ` as queue, j.message as payload, ` + headers + ` as headers, ` + headers + ` ->> 'x-pgmq-group' as key,
				j.vt as send_at, j.read_ct as attempt, j.enqueued_at as created_at
				from ` + p.quoted(table) + ` as j where ` + free + ` order by j.msg_id`,
			lock: " for update of j skip locked",
			done: "delete from " + p.quoted(table) + " where msg_id = any($1)",
			held: "select count(*) from " + p.quoted(table) + " as j where not " + free,
		})
	}
	return all, nil
}

func (p *product) names(ctx context.Context, query string) ([]string, error) {
	rows, err := p.conn.Query(ctx, query)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// literal returns a text as SQL.
func literal(s string) string {
	return " e'" + strings.NewReplacer(`\`, `\\`, "'", "''").Replace(s) + "'"
}
