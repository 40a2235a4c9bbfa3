//go:build unix

package documents_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// imageConfig is the part of an image's configuration that a container engine runs it by.
type imageConfig struct {
	OS, Architecture string
	Config           struct {
		User            string
		Env             []string
		Entrypoint, Cmd []string
		Healthcheck     struct{ Test []string }
	}
}

// descriptor refers to a part of an image by its digest.
type descriptor struct {
	Digest   string
	Platform struct{ Architecture string }
}

// imageOf reads the image of this machine's processor out of an OCI layout, and unpacks it into a
// folder.
func imageOf(t *testing.T, archive []byte, folder string) imageConfig {
	t.Helper()
	files := untar(t, archive)
	read := func(digest string, into any) {
		t.Helper()
		if err := json.Unmarshal(files["blobs/sha256/"+strings.TrimPrefix(digest, "sha256:")], into); err != nil {
			t.Fatalf("%s: %v", digest, err)
		}
	}
	var index struct{ Manifests []descriptor }
	if err := json.Unmarshal(files["index.json"], &index); err != nil || len(index.Manifests) != 1 {
		t.Fatalf("index.json: %v\n%s", err, files["index.json"])
	}
	read(index.Manifests[0].Digest, &index) // one for all processors
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	for _, m := range index.Manifests {
		if m.Platform.Architecture == runtime.GOARCH {
			read(m.Digest, &manifest)
		}
	}
	var config imageConfig
	read(manifest.Config.Digest, &config)
	for _, layer := range manifest.Layers {
		for name, content := range untar(t, gunzip(t, files["blobs/sha256/"+strings.TrimPrefix(layer.Digest, "sha256:")])) {
			path := filepath.Join(folder, name)
			mode := os.FileMode(0o644)
			if name == "posthaste" {
				mode = 0o755
			}
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, content, mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	return config
}

const imageToken = "secret-of-the-test-0123456789"

// container runs an image with runc, the runtime that Docker uses, with the network of this
// machine and everything else separate.
type container struct{ id string }

// startContainer starts a command of the image as its user, on a read-only root file system and
// without capabilities. It returns a channel with the command's end.
func startContainer(t *testing.T, image imageConfig, bundle string, command, env []string) (container, <-chan error) {
	t.Helper()
	var uid, gid int
	if n, err := fmt.Sscanf(image.Config.User, "%d:%d", &uid, &gid); n != 2 || err != nil || uid == 0 || gid == 0 {
		t.Fatalf("the image runs as %q, want two numbers other than 0", image.Config.User)
	}
	type object = map[string]any
	for _, folder := range []string{"proc", "dev"} { // an engine creates them
		if err := os.MkdirAll(filepath.Join(bundle, "rootfs", folder), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	config, err := json.Marshal(object{
		"ociVersion": "1.0.2",
		"root":       object{"path": "rootfs", "readonly": true},
		"process": object{
			"args": slices.Concat(image.Config.Entrypoint, command), "env": slices.Concat(image.Config.Env, env), "cwd": "/",
			"user": object{"uid": uid, "gid": gid}, "noNewPrivileges": true, "capabilities": object{},
		},
		"mounts": []object{
			{"destination": "/proc", "type": "proc", "source": "proc"},
			{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "mode=755"}},
		},
		"linux": object{"namespaces": []object{{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), config, 0o644); err != nil {
		t.Fatal(err)
	}
	c := container{fmt.Sprintf("posthaste-test-%d-%s", os.Getpid(), command[0])}
	cmd := exec.Command("runc", "run", "--bundle", bundle, c.id)
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v; scripts/needs installs it", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = exec.Command("runc", "delete", "--force", c.id).Run() })
	return c, ended
}

// runs runs another command of the image in its container.
func (c container) runs(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "runc", append([]string{"exec", c.id}, args...)...).CombinedOutput()
	return string(out), err
}

// process returns what the kernel tells of the container's first process.
func (c container) process(t *testing.T, file string) string {
	t.Helper()
	var state struct{ Pid int }
	out, err := exec.CommandContext(t.Context(), "runc", "state", c.id).Output()
	if err == nil {
		err = json.Unmarshal(out, &state)
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(readFile(t, fmt.Sprintf("/proc/%d/%s", state.Pid, file)))
}

// The image runs as a user without rights, on a read-only root file system, and its health check
// says whether the server is ready.
func TestDR4_Image(t *testing.T) {
	testrun.Nightly(t, "it builds releases")
	bundle := t.TempDir()
	if err := os.Chmod(filepath.Dir(bundle), 0o755); err != nil { // its user has no rights
		t.Fatal(err)
	}
	if err := os.Chmod(bundle, 0o755); err != nil {
		t.Fatal(err)
	}
	image := imageOf(t, readFile(t, release(t), "posthaste-"+releaseNumber+"-image.tar"), filepath.Join(bundle, "rootfs"))
	if found := bytes.Count(readFile(t, bundle, "rootfs/etc/ssl/certs/ca-certificates.crt"), []byte("BEGIN CERTIFICATE")); found < 100 {
		t.Errorf("it has %d certificate authorities", found)
	}
	port := freePort(t)
	database := testpg.Empty(t)
	env := []string{"DATABASE_URL=" + database, "POSTHASTE_TOKEN=" + imageToken, "POSTHASTE_LISTEN=0.0.0.0:" + port}
	if _, ended := startContainer(t, image, bundle, []string{"migrate", "up"}, env); <-ended != nil {
		t.Fatal("it does not migrate")
	}
	c, ended := startContainer(t, image, bundle, image.Config.Cmd, env)
	check := image.Config.Healthcheck.Test
	if len(check) < 2 || check[0] != "CMD" {
		t.Fatalf("the health check is %q", check)
	}
	testrun.Until(t, time.Minute, "it is healthy", func() bool {
		out, err := c.runs(t.Context(), check[1:]...)
		return err == nil && strings.TrimSpace(out) == "ready"
	})
	sends(t, "127.0.0.1:"+port)

	c.checkRights(t)

	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), "drop schema posthaste cascade"); err != nil {
		t.Fatal(err)
	}
	testrun.Until(t, time.Minute, "it is not healthy without its tables", func() bool {
		_, err := c.runs(t.Context(), check[1:]...)
		return err != nil
	})
	if out, err := c.runs(t.Context(), "/posthaste", "healthcheck", "--live"); err != nil {
		t.Errorf("its process does not live: %v\n%s", err, out)
	}
	if out, err := exec.CommandContext(t.Context(), "runc", "kill", c.id, "TERM").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := <-ended; err != nil {
		t.Errorf("SIGTERM ends it with %v", err)
	}
}

// checkRights checks the user, the rights and the root file system of the container's process.
func (c container) checkRights(t *testing.T) {
	t.Helper()
	status := c.process(t, "status")
	for _, want := range []string{`Uid:\s65532\s65532\s65532\s65532`, `Gid:\s65532\s65532\s65532\s65532`, `CapEff:\s0{16}`, `CapBnd:\s0{16}`, `NoNewPrivs:\s1`} {
		if !regexp.MustCompile(want).MatchString(status) {
			t.Errorf("its process does not have %s:\n%s", want, status)
		}
	}
	if mounts := c.process(t, "mountinfo"); !regexp.MustCompile(`(?m)^\d+ \d+ \S+ \S+ / ro[ ,]`).MatchString(mounts) {
		t.Errorf("its root file system is not read-only:\n%s", mounts)
	}
}

// freePort returns a port on which nothing listens.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// sends sends a message through the server of the container.
func sends(t *testing.T, address string) {
	t.Helper()
	for _, r := range []struct{ method, path, body string }{
		{"PUT", "/v1/queues/orders", "{}"},
		{"POST", "/v1/queues/orders/messages", `{"payload": 1}`},
	} {
		request, err := http.NewRequestWithContext(t.Context(), r.method, "http://"+address+r.path, strings.NewReader(r.body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Authorization", "Bearer "+imageToken)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode/100 != 2 {
			t.Errorf("%s %s answers %s", r.method, r.path, response.Status)
		}
	}
}
