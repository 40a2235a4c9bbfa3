package ledger_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testpg/testdb"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// These tests wait for locks, clocks and turns of the ring most of the time.
func TestMain(m *testing.M) {
	// A server of this process's own: open transactions in the databases of other
	// packages' tests would keep the ring from turning here.
	for _, version := range testdb.Versions() {
		_ = os.Unsetenv(testdb.URLEnv(version))
	}
	if err := testrun.Parallel(6); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
