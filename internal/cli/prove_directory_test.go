//go:build unix

package cli

import (
	"os"
	"path/filepath"
	"testing"
)

// A directory that contains something keeps its mode: --data may be /tmp by mistake. Other users
// cannot read what prove writes.
func TestProveDirectory(t *testing.T) {
	t.Parallel()
	mode := func(path string) os.FileMode {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode()
	}
	used := t.TempDir()
	if err := os.WriteFile(filepath.Join(used, "ours"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(used, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	before := mode(used)
	if _, err := (&proveFlags{data: used}).directory(); err == nil || mode(used) != before {
		t.Errorf("a directory with a file: %v; its mode was %s and is %s", err, before, mode(used))
	}
	dir, err := (&proveFlags{data: filepath.Join(t.TempDir(), "new")}).directory()
	if err != nil {
		t.Fatal(err)
	}
	log, err := openProcessLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if mode(dir).Perm()&0o066 != 0 || mode(log.Name()).Perm() != 0o600 || mode(filepath.Join(dir, histories)).Perm() != 0o700 {
		t.Errorf("the modes are %s, %s and %s", mode(dir), mode(log.Name()), mode(filepath.Join(dir, histories)))
	}
}
