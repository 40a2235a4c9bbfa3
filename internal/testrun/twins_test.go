//go:build unix

package testrun

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func TestTwinsRunUntilTheirSourcesWereSeen(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv(NightEnv, "")
	t.Setenv(FullEnv, "")
	ran := func(name string, record bool, sources ...string) bool {
		t.Setenv(RecordEnv, map[bool]string{true: "1"}[record])
		r := &recorder{TB: t, name: name}
		r.run(func() { Twin(r, sources...)() })
		return r.skipped == ""
	}
	if !ran("a", false, "sql", "test") || !ran("a", true, "sql", "test") {
		t.Error("a twin that was never recorded is skipped")
	}
	if ran("a", false, "sql", "test") {
		t.Error("a twin whose sources were seen runs again")
	}
	for _, sources := range [][]string{{"sql", "test 2"}, {"sql 2", "test"}, {"sqlt", "est"}} {
		if !ran("a", false, sources...) {
			t.Errorf("a twin is skipped with the new sources %q", sources)
		}
	}
	if !ran("b", false, "sql", "test") {
		t.Error("another twin of the same sources is skipped")
	}
	t.Setenv(NightEnv, "1")
	if !ran("a", false, "sql", "test") {
		t.Error("a twin is skipped at night")
	}
}

func TestSumsAreRecordedAtOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "testdata", "twins.sum")
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if err := recordSum(path, fmt.Sprintf("Test/%02d", i), "new"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := recordSum(path, "Test/07", "newer"); err != nil {
		t.Fatal(err)
	}
	recorded, err := readSums(path)
	if err != nil || len(recorded) != 20 || recorded["Test/07"] != "newer" || recorded["Test/08"] != "new" {
		t.Errorf("%v, %v", recorded, err)
	}
	if err := os.WriteFile(path, []byte("broken\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readSums(path); err == nil {
		t.Error("a broken file is read")
	}
}
