//go:build unix

package testdb

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestTempDir(t *testing.T) {
	t.Parallel()
	first, remove, err := TempDir()
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	if info, err := os.Stat(first); err != nil || info.Mode().Perm() != 0o777 || info.Mode()&os.ModeSticky == 0 {
		t.Errorf("%v, %v: other users cannot use it", info, err)
	}
	// A directory of a process that has ended.
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(filepath.Dir(first), fmt.Sprint(tempPrefix, ended.Process.Pid, "-1"))
	if err := os.MkdirAll(filepath.Join(old, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	second, removeSecond, err := TempDir()
	if err != nil {
		t.Fatal(err)
	}
	removeSecond()
	for dir, want := range map[string]bool{first: true, second: false, old: false} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s is there: %t, want %t", dir, err == nil, want)
		}
	}
}
