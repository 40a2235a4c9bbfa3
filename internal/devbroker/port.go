//go:build unix

package devbroker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// TakePort returns a free port and reserves it while this process lives, because a server
// listens on it only seconds later, and again after it was killed. The port is outside of the
// range from which the system assigns ports to connections.
func TakePort() (int, error) {
	dir := filepath.Join("/tmp", fmt.Sprint("posthaste-ports-", os.Getuid())) // os.TempDir may differ between runs
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, err
	}
	var last error
	for range 1000 {
		port := 15_000 + rand.N(15_000)
		if last = take(dir, port); last == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port: %w", last)
}

// take locks a port. The lock ends with the process, which closes the file.
func take(dir string, port int) error {
	lock, err := unix.Open(filepath.Join(dir, strconv.Itoa(port)), unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	if err = unix.Flock(lock, unix.LOCK_EX|unix.LOCK_NB); err == nil {
		var l net.Listener
		if l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return l.Close()
		}
	}
	return errors.Join(err, unix.Close(lock))
}
