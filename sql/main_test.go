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
	if f := flag.Lookup("test.parallel"); f != nil {
		if v, ok := f.Value.(flag.Getter); ok {
			if n, ok := v.Get().(int); ok && n < 4 {
				_ = flag.Set("test.parallel", "4")
			}
		}
	}
	os.Exit(m.Run())
}
