package ledger_test

import (
	"flag"
	"os"
	"testing"
)

// These tests wait for locks, clocks and turns of the ring most of the time, so
// that more of them at once than there are cores cost no more.
func TestMain(m *testing.M) {
	flag.Parse()
	if n := flag.Lookup("test.parallel"); n != nil && len(n.Value.String()) == 1 && n.Value.String() < "4" {
		_ = flag.Set("test.parallel", "4")
	}
	os.Exit(m.Run())
}
