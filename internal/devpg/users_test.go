//go:build unix

package devpg

import (
	"encoding/json"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func TestBelowADirectoryOnlyRootCanEnter(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root meets this")
	}
	data := filepath.Join(t.TempDir(), "secret", "data")
	if err := os.MkdirAll(filepath.Dir(data), 0o700); err != nil {
		t.Fatal(err)
	}
	c := Config{DataDir: data}
	s := start(t, c)
	if strings.HasPrefix(s.DataDir(), data) {
		t.Errorf("the cluster lies in %s", s.DataDir())
	}
	exec1(t, s.URL(), "create table kept (n int)")
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The cluster is found again, even after the directory was moved.
	moved := data + "-moved"
	if err := os.Rename(data, moved); err != nil {
		t.Fatal(err)
	}
	again := start(t, Config{DataDir: moved})
	if again.DataDir() != s.DataDir() {
		t.Errorf("the cluster lies in %s, and before in %s", again.DataDir(), s.DataDir())
	}
	if got := ask(t, again.URL(), "select count(*)::text from kept"); got != "0" {
		t.Errorf("the table holds %s", got)
	}
	if err := again.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := Remove(t.Context(), moved); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.DataDir()); !os.IsNotExist(err) {
		t.Errorf("the cluster is still in %s", s.DataDir())
	}
}

func TestAsAnOrdinaryUser(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("the other tests run as one")
	}
	s := start(t, Config{DataDir: dir(t)}) // for its binaries
	who, err := s.location.owner()
	if err != nil {
		t.Fatal(err)
	}
	data := dir(t)
	if err := os.Chown(data, int(who.Uid), int(who.Gid)); err != nil {
		t.Fatal(err)
	}
	cmd, o := startOwner(t, Config{DataDir: data, BinDir: s.binaries.dir}, who)
	if ask(t, o.URL, "select 1::text") != "1" {
		t.Error("PostgreSQL does not answer")
	}
	kill(t, cmd.Process.Pid)
	_ = cmd.Wait()
	// Root uses that user's cluster, as that user.
	again := start(t, Config{DataDir: data})
	if again.DataDir() != o.DataDir {
		t.Errorf("the cluster lies in %s, and before in %s", again.DataDir(), o.DataDir)
	}
}

// The error for a user id without a name, as in some containers, says what to do.
func TestAsAUserWithoutAName(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can start a process as a user without a name")
	}
	s := start(t, Config{DataDir: dir(t)}) // for its binaries
	const uid = 54321
	if _, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		t.Fatalf("user %d has a name", uid)
	}
	data := dir(t)
	if err := os.Chown(data, uid, uid); err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(map[string]string{"DataDir": data, "BinDir": s.binaries.dir})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), ownerEnv+"="+string(raw))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "posthaste:x:54321:54321:") {
		t.Errorf("%v: %s", err, out)
	}
}
