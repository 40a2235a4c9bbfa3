//go:build unix

package main

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// mainEnv makes the test binary the launcher.
const mainEnv = "POSTHASTE_LAUNCH_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainEnv) != "" {
		main()
	}
	os.Exit(m.Run())
}

func launcher(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), mainEnv+"=1")
	cmd.Stderr = os.Stderr
	return cmd
}

func TestRunsTheCommandWithServers(t *testing.T) {
	t.Parallel()
	cmd := launcher(t, "--", "sh", "-c", `echo "$POSTHASTE_TEST_POSTGRES_14_URL $POSTHASTE_TEST_POSTGRES_18_URL"; read line; exit 7`)
	urls := started(t, cmd)
	if len(urls) != 2 {
		t.Fatalf("told the addresses %q", urls)
	}
	for i, version := range []string{"14.", "18."} {
		if got := serverVersion(t, urls[i]); !strings.HasPrefix(got, version) {
			t.Errorf("PostgreSQL %s, want %s", got, version)
		}
	}
	cmd.Stdin.(*os.File).Close()
	if code := exitCode(cmd.Wait()); code != 7 {
		t.Errorf("exit code %d, want the command's", code)
	}
	for _, u := range urls {
		if runs(u) {
			t.Errorf("a server outlived the launcher")
		}
	}
}

func TestEndsWithItsServers(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]struct {
		signal syscall.Signal
		code   int
	}{
		"asked to end": {syscall.SIGTERM, 3}, // the command's own exit code
		"killed":       {syscall.SIGKILL, 128 + 9},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := launcher(t, "-versions", "18", "--", "sh", "-c",
				`trap 'exit 3' TERM; echo "$POSTHASTE_TEST_POSTGRES_18_URL"; while :; do sleep 0.05; done`)
			// The command outlives a killed launcher. It ends with this process group.
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			urls := started(t, cmd)
			t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
			if err := cmd.Process.Signal(end.signal); err != nil {
				t.Fatal(err)
			}
			if code := exitCode(cmd.Wait()); code != end.code {
				t.Errorf("exit code %d, want %d", code, end.code)
			}
			testrun.Until(t, 30*time.Second, "the server ends after the launcher", func() bool { return !runs(urls[0]) })
		})
	}
}

// The command can read the stalls of the run while it runs.
func TestTellsWhereStallsAre(t *testing.T) {
	t.Parallel()
	cmd := launcher(t, "-versions", "18", "--", "sh", "-c", `test -r "$POSTHASTE_TEST_STALLS" && echo "$POSTHASTE_TEST_STALLS"; read line`)
	files := started(t, cmd)
	cmd.Stdin.(*os.File).Close()
	if code := exitCode(cmd.Wait()); code != exitFailed || len(files) != 1 { // read reached the end of input
		t.Fatalf("exit code %d, files %q", code, files)
	}
	if _, err := os.Stat(files[0]); !os.IsNotExist(err) {
		t.Errorf("the file outlived the launcher: %v", err)
	}
}

func TestWrongUse(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"-versions", "9", "--", "true"}} {
		cmd := launcher(t, args...)
		cmd.Stderr = nil
		if code := exitCode(cmd.Run()); code != exitUsage {
			t.Errorf("%q: exit code %d", args, code)
		}
	}
	if code := exitCode(launcher(t, "-versions", "18", "--", "/no/such/command").Run()); code != exitFailed {
		t.Errorf("a command that does not exist: exit code %d", code)
	}
}

// started starts the launcher and returns the words of the first line that its command prints.
// cmd.Stdin is the read end of a pipe whose other end the test holds.
func started(t *testing.T, cmd *exec.Cmd) []string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin = r
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.Close()
	cmd.Stdin = w // so that a test can close it
	t.Cleanup(func() { w.Close() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the command told nothing: %v", err)
	}
	return strings.Fields(line)
}

func serverVersion(t *testing.T, url string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var v string
	if err := conn.QueryRow(t.Context(), "show server_version").Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func runs(url string) bool {
	conn, err := pgx.Connect(context.Background(), url)
	if err != nil {
		return false
	}
	conn.Close(context.Background())
	return true
}
