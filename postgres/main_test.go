package postgres

import (
	"fmt"
	"os"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testrun"
)

func TestMain(m *testing.M) {
	if err := testrun.Parallel(6); err != nil { // the tests mostly wait for the server
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
