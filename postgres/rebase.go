package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthaste-mq/posthaste"
)

// Rebased is the result of [Rebase]. Its counts are deliveries.
type Rebased struct {
	// Rebased is false if there was nothing to do.
	Rebased bool `json:"rebased"`
	// Waiting counts deliveries that had not been handed out.
	Waiting int64 `json:"waiting"`
	// Again counts deliveries that had been handed out and not settled; they are redelivered.
	Again int64 `json:"again"`
}

// Rebase makes a copy of a database usable, which hands out nothing until then. The copy may be
// restored from a dump, cloned, replicated, or physical (see [WithEnvironment]). sameIDs says
// that it was created by pg_upgrade, or that the database was moved rather than copied, so that
// only this fact is recorded. The original must not hand out messages any more; otherwise
// unsettled ones are handled in both.
//
// Rebase runs in one transaction. Senders wait for it, and if it is interrupted nothing has
// changed. Running it again does nothing. It calls progress with messages about its progress.
// Codes: Conflict (sameIDs is set, but the ids differ), Denied, and those of [Engine.Ready].
func Rebase(ctx context.Context, url string, sameIDs bool, progress func(string)) (Rebased, error) {
	config, err := poolConfig(url, options{polling: true})
	if err != nil {
		return Rebased{}, err
	}
	config.ConnConfig.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { progress(n.Message) }
	conn, err := pgx.ConnectConfig(ctx, config.ConnConfig)
	if err != nil {
		return Rebased{}, readError(err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := checkServer(ctx, conn); err != nil {
		return Rebased{}, err
	}
	if err := checkSchema(ctx, conn); err != nil {
		return Rebased{}, err
	}
	var did Rebased
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		// It may take minutes, because it waits for open transactions of senders.
		for _, sql := range []string{`set local statement_timeout = 0`, `set local lock_timeout = 0`, `set local client_min_messages = notice`,
			`select pg_catalog.set_config('transaction_timeout', '0', true) where pg_catalog.current_setting('transaction_timeout', true) is not null`} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return tx.QueryRow(ctx, `select rebased, waiting, again from posthaste.rebase($1, nullif($2::text, ''))`, sameIDs, posthaste.ActorOf(ctx)).Scan(&did.Rebased, &did.Waiting, &did.Again)
	})
	return did, writeError(err)
}
