//go:build unix

package cli_test

import (
	"strings"
	"syscall"
	"testing"
)

// survivesKills starts up with ports, sends the printed mail, kills the store and up in turn, and finds
// the mail again. check checks the running store, samePorts returns the flags to start it again on its
// ports, and stopped checks that it has stopped.
func survivesKills(t *testing.T, ports []string, check func(upped), samePorts func(upped) []string, stopped func(upped)) {
	t.Helper()
	dir := t.TempDir()
	p, u := startUp(t, dir, ports...)
	var sent struct{ ID string }
	if _, err := do("POST", u.HTTP+"/v1/emails", printedBody(t, u), &sent); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the mail is caught", caught(u, 1))
	isSent := func() error { return checkSent(u.HTTP + "/v1/emails/" + sent.ID) }
	eventually(t, "the mail is sent", isSent)
	if _, err := get(u.HTTP+"/readyz", nil); err != nil {
		t.Error(err)
	}
	check(u)

	// The store is killed, and up restarts it with its data.
	for _, pid := range descendants(t, p.Process.Pid) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	sendsAgain(t, u, 1)

	// up is killed, and its store may keep running. The next up takes over the data.
	eventually(t, "the first mail is sent still", isSent)
	flags := append(samePorts(u), "--listen", strings.TrimPrefix(u.HTTP, "http://"), "--smtp-listen", u.SMTP)
	_ = p.Process.Kill()
	p.wait()
	p, u = startUp(t, dir, flags...)
	if err := isSent(); err != nil {
		t.Errorf("after the kill: %v", err)
	}
	stopAll(t, p)
	stopped(u)

	// --reset removes all data.
	p, u = startUp(t, dir, append(flags, "--reset", "--yes")...)
	if err := isSent(); err == nil {
		t.Error("the mail is there after reset")
	}
	if err := caught(u, 0)(); err != nil {
		t.Errorf("after reset: %v", err)
	}
	if code := p.stop(syscall.SIGINT); code != 0 {
		t.Errorf("SIGINT: exit code %d", code)
	}
}
