package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Rebased is what [Rebase] did, in deliveries.
type Rebased struct {
	// Rebased is false if the ledger belonged to the database already.
	Rebased bool `json:"rebased"`
	// Waiting counts what nobody had been handed.
	Waiting int64 `json:"waiting"`
	// Again counts what somebody had been handed and had not settled.
	Again int64 `json:"again"`
}

// Rebase makes the ledger of a copy usable: of a database that was restored from a
// dump, cloned or replicated, or of a physical one (see [WithEnvironment]), which hands
// out nothing until then. sameIDs says that pg_upgrade made it, or that it is no copy but
// was moved, so that nothing but that is written down. The original must hand out nothing
// any more, or what was not settled is handled there and here.
//
// It is one transaction, for which whoever sends waits; cut off, it has done
// nothing, and repeated, too. progress is told in words how far it is; it is called
// from this goroutine. Codes: Conflict (sameIDs, and they are others), Denied, and
// those of [Engine.Ready].
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
		// It may take minutes, and waits for open senders.
		for _, sql := range []string{`set local statement_timeout = 0`, `set local lock_timeout = 0`, `set local client_min_messages = notice`,
			`select pg_catalog.set_config('transaction_timeout', '0', true) where pg_catalog.current_setting('transaction_timeout', true) is not null`} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return tx.QueryRow(ctx, `select rebased, waiting, again from posthaste.rebase($1)`, sameIDs).Scan(&did.Rebased, &did.Waiting, &did.Again)
	})
	return did, writeError(err)
}
