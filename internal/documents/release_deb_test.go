//go:build unix

package documents_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// The package is installed by dpkg below another root, and systemd accepts its units. An upgrade
// keeps the configuration, and purging it leaves nothing.
func TestReleasePackage(t *testing.T) {
	testrun.Nightly(t, "it builds releases")
	t.Parallel()
	archive := filepath.Join(release(t), "posthaste_"+debVersion+"_"+runtime.GOARCH+".deb")
	to := t.TempDir()
	for _, folder := range []string{"var/lib/dpkg/info", "var/lib/dpkg/updates", "var/log"} {
		if err := os.MkdirAll(filepath.Join(to, folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"status", "available"} {
		if err := os.WriteFile(filepath.Join(to, "var/lib/dpkg", file), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := func(command string, args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), command, args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", command, strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	dpkg := func(args ...string) string {
		t.Helper()
		return run("dpkg", append([]string{"--root=" + to, "--force-script-chrootless", "--force-not-root", "--force-confold"}, args...)...)
	}
	dpkg("--install", archive)
	if status := run("dpkg-query", "--admindir="+filepath.Join(to, "var/lib/dpkg"), "--show", "--showformat=${Status} ${Version}", "posthaste"); status != "install ok installed "+debVersion {
		t.Errorf("its status is %q", status)
	}
	checkVersion(t, filepath.Join(to, "usr/bin/posthaste"))
	config := filepath.Join(to, "etc/posthaste/posthaste.env")
	if info, err := os.Stat(config); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file with the passwords: %v, %v", info.Mode(), err)
	}

	for _, name := range []string{"posthaste-serve.service", "posthaste-worker.service"} {
		checkUnit(t, to, name)
	}
	if err := os.WriteFile(config, []byte("DATABASE_URL=ours\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dpkg("--install", archive)
	if got := string(readFile(t, config)); got != "DATABASE_URL=ours\n" {
		t.Errorf("an upgrade wrote the configuration: %q", got)
	}
	dpkg("--purge", "posthaste")
	for _, gone := range []string{"usr/bin/posthaste", "etc/posthaste", "usr/share/doc/posthaste", "usr/lib/systemd/system/posthaste-serve.service"} {
		if _, err := os.Stat(filepath.Join(to, gone)); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", gone, err)
		}
	}
}

// checkUnit checks a unit of the package that is installed below a folder. systemd looks for its
// program in this machine's root.
func checkUnit(t *testing.T, to, name string) {
	t.Helper()
	unit := readFile(t, to, "usr/lib/systemd/system", name)
	if !bytes.Contains(unit, []byte("ExecStart=/usr/bin/posthaste ")) {
		t.Errorf("%s does not start the program of the package", name)
	}
	path := filepath.Join(to, name)
	unit = bytes.ReplaceAll(unit, []byte("/usr/bin/posthaste"), []byte(filepath.Join(to, "usr/bin/posthaste")))
	if err := os.WriteFile(path, unit, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", path).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd says of %s: %v\n%s", name, err, out)
	}
}

// A package can be installed, removed and purged although systemd reports an error, for example
// of a unit that was masked.
func TestReleasePackageWithoutSystemd(t *testing.T) {
	t.Parallel()
	to := t.TempDir()
	called := filepath.Join(to, "called")
	if err := os.WriteFile(filepath.Join(to, "systemctl"), []byte("#!/bin/sh\necho \"$@\" >>"+called+"\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for script, argument := range map[string]string{"postinst": "configure", "prerm": "remove", "postrm": "remove"} {
		text := bytes.ReplaceAll(readFile(t, "../../deploy/deb", script), []byte("/run/systemd/system"), []byte(to))
		cmd := exec.CommandContext(t.Context(), "sh", "-s", argument)
		cmd.Stdin, cmd.Env = bytes.NewReader(text), []string{"PATH=" + to + ":" + os.Getenv("PATH")}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s %s: %v\n%s", script, argument, err, out)
		}
	}
	if n := bytes.Count(readFile(t, called), []byte("\n")); n != 3 {
		t.Errorf("systemctl was called %d times, want 3", n)
	}
}

// A shell reads the file of the services as systemd does, whatever is in a URL.
func TestServiceEnvironmentInAShell(t *testing.T) {
	t.Parallel()
	const url = "postgres://a:p$HOME`#b@127.0.0.1:5432/app?sslmode=require&pool_max_conns=4 "
	file := filepath.Join(t.TempDir(), "posthaste.env")
	text := regexp.MustCompile(`postgres:[^'\n]*`).ReplaceAllLiteral(readFile(t, "../../deploy/posthaste.env"), []byte(url))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "sh", "-c", `set -a; . "$0"; set +a; env`, file).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "DATABASE_URL="+url+"\n") {
		t.Errorf("%v; the variables are\n%s", err, out)
	}
}
