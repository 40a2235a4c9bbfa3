// Package recipes has a program for each library, and a test of their transactions.
package recipes

import (
	"testing"

	"github.com/jmoiron/sqlx"
	"github.com/uptrace/bun"
	"gorm.io/gorm"

	"github.com/posthaste-mq/posthaste/postgres"
)

// TestTransactionsAreKnownByTheirMethods: postgres.InSQL takes these types, and knows the
// transactions among them without asking PostgreSQL.
func TestTransactionsAreKnownByTheirMethods(t *testing.T) {
	for _, one := range []struct {
		value       postgres.SQLTx
		transaction bool
	}{
		{bun.Tx{}, true}, {&gorm.PreparedStmtTX{}, true}, {&sqlx.Tx{}, true},
		{&bun.DB{}, false}, {bun.Conn{}, false}, {&gorm.PreparedStmtDB{}, false}, {&sqlx.DB{}, false}, {&sqlx.Conn{}, false},
	} {
		_, is := one.value.(interface {
			Commit() error
			Rollback() error
		})
		if is != one.transaction {
			t.Errorf("%T is known as a transaction: %t, want %t", one.value, is, one.transaction)
		}
	}
}

var _ postgres.SQLTx = gorm.ConnPool(nil)
