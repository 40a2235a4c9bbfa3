//go:build unix

package devpg

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// ownerEnv makes the test binary a process that owns a cluster until it is killed.
const ownerEnv = "POSTHASTE_DEVPG_TEST_OWNER"

func TestMain(m *testing.M) {
	if raw, ok := os.LookupEnv(ownerEnv); ok {
		own(raw)
	}
	os.Exit(m.Run())
}

// owned is the output of an owner process.
type owned struct {
	URL, DataDir      string
	Postmaster, Guard int
}

func own(raw string) {
	var c Config
	err := json.Unmarshal([]byte(raw), &c)
	var s *Server
	if err == nil {
		s, err = Start(context.Background(), c)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(owned{s.URL(), s.DataDir(), s.daemon.pid, s.guard.cmd.Process.Pid})
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the test closes it
	if err := s.Stop(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// startOwner starts a process that owns the cluster of c.
func startOwner(t *testing.T, c Config, who *syscall.Credential) (*exec.Cmd, owned) {
	t.Helper()
	raw, err := json.Marshal(struct {
		Version, DataDir, BinDir string
		Ephemeral                bool
	}{c.Version, c.DataDir, c.BinDir, c.Ephemeral})
	if err != nil {
		t.Fatal(err)
	}
	self := "/proc/self/exe"
	if runtime.GOOS != "linux" {
		self, _ = os.Executable()
	}
	cmd := exec.Command(self)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), ownerEnv+"="+string(raw))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: who}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the owner process told nothing: %v", err)
	}
	var o owned
	if err := json.Unmarshal([]byte(line), &o); err != nil {
		t.Fatal(err)
	}
	return cmd, o
}

func start(t *testing.T, c Config) *Server {
	t.Helper()
	s, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if err := Remove(context.Background(), c.DataDir); err != nil {
			t.Error(err)
		}
	})
	return s
}

// dir returns a data directory that all users can reach, unlike t.TempDir. It is in memory if
// there is room, because creating a cluster takes seconds on a busy disk.
func dir(t *testing.T) string {
	t.Helper()
	base := ""
	var st unix.Statfs_t
	if unix.Statfs("/dev/shm", &st) == nil && st.Bavail*uint64(st.Bsize) > 2<<30 {
		base = "/dev/shm"
	}
	d, err := os.MkdirTemp(base, "devpg-test-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(d, 0o711); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(d) })
	return d
}

func ask(t *testing.T, url, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var answer string
	if err := conn.QueryRow(t.Context(), sql).Scan(&answer); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return answer
}

func exec1(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// eventually waits for a condition of another process.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	testrun.Until(t, 30*time.Second, what, holds)
}

func TestStartRestartStopAndKill(t *testing.T) {
	t.Parallel()
	for version, release := range releases {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			var stages []string
			s := start(t, Config{Version: version, DataDir: dir(t), Settings: map[string]string{"max_connections": "37"},
				Progress: func(stage string, _, _ int64) { stages = append(stages, stage) }})
			if want := strings.TrimSuffix(release, ".0"); s.Version() != want {
				t.Errorf("version %q, want %q", s.Version(), want)
			}
			wantSettings(t, s)
			if last := stages[len(stages)-1]; last != StageStart || !contains(stages, StageInit) {
				t.Errorf("told stages %q", stages)
			}
			// A schema with the user's name does not become the default for their tables.
			exec1(t, s.URL(), "create schema posthaste; create table kept (n int); insert into kept values (1)")
			if got := ask(t, s.URL(), "select relnamespace::regnamespace::text from pg_class where relname = 'kept'"); got != "public" {
				t.Errorf("an unqualified table lands in schema %s", got)
			}
			url := s.URL()
			if err := s.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			if s.URL() != url {
				t.Error("the address changed by a restart")
			}
			exec1(t, url, "insert into kept values (2)")
			killAndRecover(t, s)
			if got := ask(t, url, "select string_agg(n::text, ',' order by n) from kept"); got != "1,2" {
				t.Errorf("after a crash the table holds %s", got)
			}
			exec1(t, url, "alter database posthaste set search_path = own, public")
			for range 2 {
				if err := s.Stop(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			<-s.Done()
			if _, err := pgx.Connect(t.Context(), url); err == nil {
				t.Error("PostgreSQL runs after Stop")
			}
			if err := s.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := ask(t, url, "select count(*)::text from kept"); got != "2" {
				t.Errorf("after a stop the table holds %s rows", got)
			}
			if err := s.createDatabase(t.Context()); err != nil || ask(t, url, "show search_path") != "own, public" {
				t.Errorf("a search_path that was set before was changed (%v)", err)
			}
		})
	}
}

// wantSettings checks the settings of a new cluster, of which max_connections was set to 37.
func wantSettings(t *testing.T, s *Server) {
	t.Helper()
	for sql, want := range map[string]string{
		"show server_version":                           s.Version(),
		"show server_encoding":                          "UTF8",
		"show fsync":                                    "on",
		"show synchronous_commit":                       "on",
		"show max_connections":                          "37",
		"show data_directory":                           s.DataDir(),
		"select current_user::text":                     "posthaste",
		"select current_database()":                     "posthaste",
		"show password_encryption":                      "scram-sha-256",
		"select min(c) from (values ('a'), ('B')) v(c)": "B", // by code point
	} {
		if got := ask(t, s.URL(), sql); got != want {
			t.Errorf("%s: %q, want %q", sql, got, want)
		}
	}
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}

// killAndRecover kills all of PostgreSQL while a session is open.
func killAndRecover(t *testing.T, s *Server) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	done := s.Done()
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	<-done
	if pids, err := clusterProcesses(s.DataDir()); err != nil || len(pids) > 0 {
		t.Errorf("processes %v outlived Kill (%v)", pids, err)
	}
	if err := conn.Ping(t.Context()); err == nil {
		t.Error("a session outlived Kill")
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestDataSurvivesTheOwnersDeath(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(t *testing.T, cmd *exec.Cmd, o owned){
		"owner": func(t *testing.T, cmd *exec.Cmd, o owned) {
			kill(t, cmd.Process.Pid)
			eventually(t, "the guard stops PostgreSQL", func() bool { return gone(o.DataDir) })
		},
		"owner while the guard still stops it": func(t *testing.T, cmd *exec.Cmd, o owned) {
			kill(t, cmd.Process.Pid)
		},
		"owner and guard": func(t *testing.T, cmd *exec.Cmd, o owned) {
			kill(t, o.Guard)
			kill(t, cmd.Process.Pid)
			if ask(t, o.URL, "select 1::text") != "1" {
				t.Error("PostgreSQL should still run, or the test is not valid")
			}
		},
		"everything": func(t *testing.T, cmd *exec.Cmd, o owned) {
			kill(t, o.Guard)
			kill(t, cmd.Process.Pid)
			if err := killAll(t.Context(), o.DataDir, 0); err != nil {
				t.Error(err)
			}
		},
		"owner, guard and postmaster, leaving a backend": func(t *testing.T, cmd *exec.Cmd, o owned) {
			conn, err := pgx.Connect(t.Context(), o.URL)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close(context.Background()) })
			// A stopped backend cannot notice that its postmaster died.
			if err := syscall.Kill(int(conn.PgConn().PID()), syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			kill(t, o.Guard)
			kill(t, cmd.Process.Pid)
			kill(t, o.Postmaster)
		},
	}
	for name, die := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := Config{DataDir: dir(t)}
			cmd, o := startOwner(t, c, nil)
			exec1(t, o.URL, "create table kept (n int); insert into kept values (7)")
			die(t, cmd, o)
			_ = cmd.Wait()
			s := start(t, c)
			if got := ask(t, s.URL(), "select n::text from kept"); got != "7" {
				t.Errorf("the table holds %s", got)
			}
			if s.daemon.pid == o.Postmaster {
				t.Error("the old postmaster was kept")
			}
		})
	}
}

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func gone(cluster string) bool {
	pids, err := clusterProcesses(cluster)
	return err == nil && len(pids) == 0
}

func TestStaleLockFileWithTheIDOfAnotherProgram(t *testing.T) {
	t.Parallel()
	c := Config{DataDir: dir(t)}
	s := start(t, c)
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	// A process of the cluster's user, which PostgreSQL would take for a postmaster.
	who, err := s.location.owner()
	if err != nil {
		t.Fatal(err)
	}
	other := exec.Command("sleep", "600")
	other.SysProcAttr = &syscall.SysProcAttr{Credential: who}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Process.Kill(); _ = other.Wait() })
	file := filepath.Join(s.DataDir(), pidFileName)
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(raw), "\n")
	if err := os.WriteFile(file, []byte(strconv.Itoa(other.Process.Pid)+"\n"+rest), 0o600); err != nil {
		t.Fatal(err)
	}
	again := start(t, c)
	if ask(t, again.URL(), "select 1::text") != "1" {
		t.Error("PostgreSQL does not answer")
	}
	if err := syscall.Kill(other.Process.Pid, 0); err != nil {
		t.Error("the other program was harmed")
	}
}

func TestEphemeralLeavesNothing(t *testing.T) {
	t.Parallel()
	s, err := Start(t.Context(), Config{Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{s.location.dataDir, s.location.home} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s is still there", path)
		}
	}
	if err := s.Restart(t.Context()); posthaste.CodeOf(err) != posthaste.CodeNotFound {
		t.Errorf("restarting a removed cluster: %v", err)
	}
	// Also if its owner is killed.
	cmd, o := startOwner(t, Config{Ephemeral: true}, nil)
	kill(t, cmd.Process.Pid)
	eventually(t, "the guard removes the cluster", func() bool {
		_, err := os.Stat(filepath.Dir(o.DataDir))
		return gone(o.DataDir) && os.IsNotExist(err)
	})
}

func TestRunsOnWhenNobodyHoldsTheServer(t *testing.T) {
	t.Parallel()
	url := func() string {
		s, err := Start(t.Context(), Config{Ephemeral: true})
		if err != nil {
			t.Fatal(err)
		}
		return s.URL()
	}()
	for range 3 {
		runtime.GC()
		runtime.GC() // finalizers of the first server must not affect the second
		if ask(t, url, "select 1::text") != "1" {
			t.Error("PostgreSQL does not answer")
		}
	}
	running.Range(func(key, _ any) bool {
		if s := key.(*Server); s.URL() == url {
			if err := s.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		}
		return true
	})
}

func TestCtrlCDoesNotReachPostgreSQL(t *testing.T) {
	t.Parallel()
	cmd, o := startOwner(t, Config{DataDir: dir(t)}, nil)
	pgid, err := syscall.Getpgid(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{o.Postmaster, o.Guard} {
		if got, err := syscall.Getpgid(pid); err != nil || got == pgid {
			t.Errorf("process %d is in the owner's process group %d (%v)", pid, got, err)
		}
	}
}
