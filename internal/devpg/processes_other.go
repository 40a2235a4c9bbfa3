//go:build unix && !linux

package devpg

import (
	"bufio"
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// clusterProcesses lists the postmaster that the cluster's pid file names, if that is a
// PostgreSQL process, and its children.
func clusterProcesses(dir string) ([]int, error) {
	postmaster := readPidFile(dir).pid
	if postmaster == 0 {
		return nil, nil
	}
	out, err := exec.Command("ps", "-axo", "pid=,ppid=,stat=,comm=").Output()
	if err != nil {
		return nil, fmt.Errorf("ps: %w", err)
	}
	var pids []int
	alive := false
	for sc := bufio.NewScanner(bytes.NewReader(out)); sc.Scan(); {
		f := strings.Fields(sc.Text())
		if len(f) < 4 || strings.HasPrefix(f[2], "Z") || !strings.HasPrefix(filepath.Base(f[3]), "postgres") {
			continue
		}
		pid, _ := strconv.Atoi(f[0])
		parent, _ := strconv.Atoi(f[1])
		alive = alive || pid == postmaster
		if pid == postmaster || parent == postmaster {
			pids = append(pids, pid)
		}
	}
	if !alive {
		return nil, nil
	}
	return pids, nil
}
