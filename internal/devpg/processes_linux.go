package devpg

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// clusterProcesses lists the PostgreSQL processes of the cluster in dir, also
// orphaned backends: each has the cluster as its working directory. A process
// id alone would not do, for it may have been given to another program.
func clusterProcesses(dir string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		// Unreadable ones have ended, or belong to users we cannot signal.
		cwd, err := os.Readlink(filepath.Join("/proc", e.Name(), "cwd"))
		if err != nil || strings.TrimSuffix(cwd, " (deleted)") != dir {
			continue
		}
		exe, err := os.Readlink(filepath.Join("/proc", e.Name(), "exe"))
		if err == nil && filepath.Base(strings.TrimSuffix(exe, " (deleted)")) == "postgres" {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
