package outbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthaste-mq/posthaste"
)

const triggerName = "posthaste_outbox"

// maxName is the maximum length of a name in PostgreSQL, in bytes. PostgreSQL truncates longer
// ones.
const maxName = 63

// function returns the quoted name of the trigger's function. It is in the table's schema,
// because the schema posthaste contains only Posthaste's own objects. If the table's name is
// too long, it is truncated and made unique with its hash.
func (t *Table) function() string {
	name := triggerName + "_" + t.name
	if len(name) > maxName {
		sum := sha256.Sum256([]byte(t.name))
		hash := "_" + hex.EncodeToString(sum[:6])
		name = strings.ToValidUTF8(name[:maxName-len(hash)], "") + hash
	}
	return identifier(t.schema) + "." + identifier(name)
}

// TriggerSQL returns the statements of InstallTrigger, to run them in a migration of your own
// or together with other statements.
func (t *Table) TriggerSQL() string { return strings.Join(t.triggerStatements(), "\n\n") + "\n" }

// The trigger runs after the insert, so that rows skipped by ON CONFLICT DO NOTHING are not
// sent. It is a row trigger, because partitions inherit only those. It runs as its owner, so
// that writers need no additional privileges.
func (t *Table) triggerStatements() []string {
	body := fmt.Sprintf(`
declare
  marked bigint;
begin
  perform posthaste.send_bytes(%s, %s, %s)
    from (select new.*) as r where %s;
  if found then
    %s where %s = new.%s;
    get diagnostics marked = row_count;
    if marked > 1 then
      raise unique_violation using message = format(%s, marked, new.%s);
    end if;
  end if;
  return null;
end `, t.queue, t.payload, t.options, t.pending, t.mark, t.id, identifier(t.mapping.ID),
		literal(triggerName+": %s rows of "+strings.ReplaceAll(t.Name(), "%", "%%")+"  have the id %s, which must be unique"), identifier(t.mapping.ID))
	quote := "$posthaste$"
	for n := 1; strings.Contains(body, quote); n++ {
		quote = fmt.Sprintf("$posthaste%d$", n)
	}
	return []string{
		"-- Sends each row that is inserted into " + strings.ReplaceAll(t.Name(), "\n", " ") + " in its writer's transaction, and marks it.\n" +
			"create or replace function " + t.function() + "() returns trigger\nlanguage plpgsql security definer set search_path = pg_catalog, pg_temp as " + quote + body + quote + ";",
		"revoke all on function " + t.function() + "() from public;",
		"-- Waits for the transactions that have written to the table, and blocks new\n-- ones: set lock_timeout, and retry.\n" +
			"create or replace trigger " + triggerName + " after insert on " + t.sql + "\n  for each row execute function " + t.function() + "();",
	}
}

// InstallTrigger installs the trigger or updates it. Its commit divides the rows: rows
// inserted before are committed or rolled back by then, and are left to the poller or an
// import; each row inserted later is sent in its writer's transaction. It waits for open
// transactions that have written to the table, at most 2 s at a time because other writers
// wait behind it, and retries until patience is over.
func (t *Table) InstallTrigger(ctx context.Context, patience time.Duration) error {
	return t.alter(ctx, patience, t.triggerStatements())
}

// RemoveTrigger removes the trigger. Rows inserted later stay in the table.
func (t *Table) RemoveTrigger(ctx context.Context, patience time.Duration) error {
	return t.alter(ctx, patience, []string{
		"drop trigger if exists " + triggerName + " on " + t.sql,
		"drop function if exists " + t.function() + "()",
	})
}

// lockTimeout is how long writers may have to wait behind one try.
const lockTimeout = "2s"

func (t *Table) alter(ctx context.Context, patience time.Duration, statements []string) error {
	for deadline := time.Now().Add(patience); ; {
		err := t.inTx(ctx, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "set local lock_timeout = '"+lockTimeout+"'"); err != nil {
				return err
			}
			for _, statement := range statements {
				if _, err := tx.Exec(ctx, statement); err != nil {
					return err
				}
			}
			return nil
		}, true)
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != "55P03" {
			return explain(err)
		}
		if time.Now().After(deadline) {
			return &posthaste.Error{Code: posthaste.CodeUnavailable, Message: "a transaction that has written to " + t.Name() + " stays open, so nothing was changed",
				Hint: "find it in pg_stat_activity, and run this again or with a longer --wait"}
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (t *Table) installed(ctx context.Context) (found bool, err error) {
	err = t.conn.QueryRow(ctx, "select exists (select from pg_catalog.pg_trigger where tgrelid = to_regclass($1) and tgname = $2 and tgenabled <> 'D')",
		t.sql, triggerName).Scan(&found)
	return found, err
}
