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

// maxName is how long a name may be in PostgreSQL, in bytes: it cuts what is longer.
const maxName = 63

// function is the quoted name of the trigger's function. It lies beside the
// table: the schema posthaste holds only what Posthaste made there. The name of a
// table that is too long for it is cut, and told from others by its hash.
func (t *Table) function() string {
	name := triggerName + "_" + t.name
	if len(name) > maxName {
		sum := sha256.Sum256([]byte(t.name))
		hash := "_" + hex.EncodeToString(sum[:6])
		name = strings.ToValidUTF8(name[:maxName-len(hash)], "") + hash
	}
	return identifier(t.schema) + "." + identifier(name)
}

// TriggerSQL is what InstallTrigger runs, for who wants to run it in a
// migration of their own, or together with something else.
func (t *Table) TriggerSQL() string { return strings.Join(t.triggerStatements(), "\n\n") + "\n" }

// The trigger comes after the insert: what ON CONFLICT DO NOTHING leaves out is
// not sent. It is one for each row, as partitions pass it on to whoever inserts
// into them. It runs as its owner, so that writers need no rights that they do
// not have.
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
		literal(triggerName+": %s rows of "+strings.ReplaceAll(t.Name(), "%", "%%")+" have the id %s, which must tell rows apart"), identifier(t.mapping.ID))
	quote := "$posthaste$"
	for n := 1; strings.Contains(body, quote); n++ {
		quote = fmt.Sprintf("$posthaste%d$", n)
	}
	return []string{
		"-- Sends each row that is inserted into " + strings.ReplaceAll(t.Name(), "\n", " ") + " in its writer's transaction, and marks it.\n" +
			"create or replace function " + t.function() + "() returns trigger\nlanguage plpgsql security definer set search_path = pg_catalog, pg_temp as " + quote + body + quote + ";",
		"revoke all on function " + t.function() + "() from public;",
		"-- Waits for the transactions that have written to the table, and new ones wait\n-- for it: set lock_timeout, and try again.\n" +
			"create or replace trigger " + triggerName + " after insert on " + t.sql + "\n  for each row execute function " + t.function() + "();",
	}
}

// InstallTrigger installs the trigger, or brings it up to date. The moment of
// its commit divides the rows: all that were inserted before are committed or
// gone and left to the poller or an import, each one inserted later is sent in
// its writer's transaction. It waits for open transactions that have written
// to the table, at most 2 s at a time, for others wait behind it; within
// patience it tries again.
func (t *Table) InstallTrigger(ctx context.Context, patience time.Duration) error {
	return t.alter(ctx, patience, t.triggerStatements())
}

// RemoveTrigger removes the trigger. Rows inserted later wait in the table.
func (t *Table) RemoveTrigger(ctx context.Context, patience time.Duration) error {
	return t.alter(ctx, patience, []string{
		"drop trigger if exists " + triggerName + " on " + t.sql,
		"drop function if exists " + t.function() + "()",
	})
}

// lockTimeout is how long writers may have to wait behind an attempt.
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
			return &posthaste.Error{Code: posthaste.Unavailable, Message: "a transaction that has written to " + t.Name() + " stays open, so nothing was changed",
				Hint: "look for it in pg_stat_activity, and run this again or with a longer --wait"}
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
