//go:build unix

package cli_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// TestJB7_GeneratedClients generates clients from /openapi.json of a running server, for
// TypeScript and Python. The generators must not warn, the results must compile, and a program
// that uses them must work. server tests on each change what the generators need.
func TestJB7_GeneratedClients(t *testing.T) {
	testrun.Nightly(t, "it installs the generators from their package registries")
	dir := workDir(t)
	p, u := startUp(t, dir, anyPorts...)
	defer stopAll(t, p)
	files, err := filepath.Abs("testdata/clients")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(dir, os.DirFS(files)); err != nil {
		t.Fatal(err)
	}
	answer, err := http.Get(u.HTTP + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	spec, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "openapi.json"), spec, 0o600); err != nil {
		t.Fatal(err)
	}

	run := func(command ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, command[0], command[1:]...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
		}
		return string(out)
	}
	warns := regexp.MustCompile(`(?i)warn|skipp|unable|unsupported`)
	languages, err := filepath.Abs("../../scripts/languages")
	if err != nil {
		t.Fatal(err)
	}
	run(languages)
	run("npm", "install", "--no-audit", "--no-fund", "--no-package-lock")
	if said := run("node_modules/.bin/openapi-typescript", "openapi.json", "--output", "api.ts"); warns.MatchString(said) {
		t.Errorf("openapi-typescript: %s", said)
	}
	run("node_modules/.bin/tsc")
	run("node", "smoke.js", u.HTTP)

	run("python3", "-m", "venv", "venv")
	run("venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "--requirement", "requirements.txt")
	if said := run("venv/bin/openapi-python-client", "generate", "--path", "openapi.json", "--config", "python.yaml", "--meta", "none", "--output-path", "api"); warns.MatchString(said) {
		t.Errorf("openapi-python-client: %s", said)
	}
	run("venv/bin/python", "-W", "error", "-m", "compileall", "-q", "api")
	run("venv/bin/python", "smoke.py", u.HTTP)
}
