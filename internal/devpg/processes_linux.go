package devpg

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// clusterProcesses lists the PostgreSQL processes of the cluster in dir, including orphaned
// backends: each has the cluster as its working directory. A process id is not sufficient,
// because it may have been reused by another program.
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
		// Unreadable ones have ended, or belong to users that this process cannot signal.
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
