//go:build unix

package testrun

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// sums is the file, in a package's folder, of the twins that were found: one line for each,
// with a hash and the name of its test.
const sums = "testdata/twins.sum"

// Twin begins the test of a broken twin: a copy of the product with one protection removed, in
// which the test must find the resulting fault. sources are the texts that determine the
// result: the files that the twin patches, and the file of the test.
//
// On each change Twin skips the test if these texts are the same as when the twin was last
// found. Otherwise, and at night, the test runs. The caller calls found when the fault is
// found.
func Twin(t testing.TB, sources ...string) (found func()) {
	t.Helper()
	sum := sumOf(sources)
	if !Night() {
		recorded, err := readSums(sums)
		if err != nil {
			t.Fatal(err)
		}
		if recorded[t.Name()] == sum {
			t.Skip("runs at night only: a broken twin, found before with the same sources")
		}
	}
	return func() {
		if os.Getenv(RecordEnv) != "1" {
			return
		}
		if err := recordSum(sums, t.Name(), sum); err != nil {
			t.Errorf("the twin was found, but cannot be recorded: %v", err)
		}
	}
}

func sumOf(sources []string) string {
	h := sha256.New()
	for _, s := range sources {
		fmt.Fprintf(h, "%d %s", len(s), s)
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// readSums returns the hashes by name. A missing file counts as empty.
func readSums(path string) (map[string]string, error) {
	content, err := os.ReadFile(filepath.Clean(path))
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	recorded := map[string]string{}
	for line := range strings.Lines(string(content)) {
		sum, name, found := strings.Cut(strings.TrimSpace(line), " ")
		if !found {
			return nil, fmt.Errorf("%s: %q is not a hash and a name", path, line)
		}
		recorded[name] = sum
	}
	return recorded, nil
}

// recordSum adds or replaces a line. It may run concurrently in several processes.
func recordSum(path, name, sum string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Clean(path), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer file.Close() // closing the file unlocks it
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	recorded, err := readSums(path)
	if err != nil {
		return err
	}
	recorded[name] = sum
	var text bytes.Buffer
	names := make([]string, 0, len(recorded))
	for n := range recorded {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		fmt.Fprintf(&text, "%s %s\n", recorded[n], n)
	}
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err = file.WriteAt(text.Bytes(), 0)
	return err
}
