//go:build unix

package devpg

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ulikunitz/xz"

	"github.com/posthaste-mq/posthaste"
)

func asError(err error, e **posthaste.Error) bool { return errors.As(err, e) }

// jar returns an archive in the format of the repository.
func jar(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	w, err := z.Create("postgres.txz")
	if err != nil {
		t.Fatal(err)
	}
	x, err := xz.NewWriter(w)
	if err != nil {
		t.Fatal(err)
	}
	tw := tar.NewWriter(x)
	for _, h := range entries {
		content := []byte(h.Name)
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(content))
		}
		if err := tw.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := tw.Write(content); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []interface{ Close() error }{tw, x, z} {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

// repository serves one archive and counts requests.
func repository(t *testing.T, content []byte, sum string) (url string, requests *atomic.Int64) {
	t.Helper()
	requests = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if !strings.HasPrefix(r.URL.Path, "/maven/io/zonky/test/postgres/") {
			http.NotFound(w, r)
		} else if strings.HasSuffix(r.URL.Path, ".sha256") {
			_, _ = w.Write([]byte(sum))
		} else {
			_, _ = w.Write(content)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL + "/maven/", requests
}

func hexSum(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

func TestFetchOnceThenOffline(t *testing.T) {
	t.Parallel()
	content := jar(t, tar.Header{Name: "bin/postgres", Typeflag: tar.TypeReg, Mode: 0o755},
		tar.Header{Name: "share/deep/file", Typeflag: tar.TypeReg, Mode: 0o600},
		tar.Header{Name: "lib/link", Typeflag: tar.TypeSymlink, Linkname: "../bin/postgres"})
	repo, requests := repository(t, content, hexSum(content)+"\n")
	a := archive{file: filepath.Join(t.TempDir(), "a.jar"), platform: "test", release: "1.0"}
	var done, total int64
	c := Config{Repository: repo, Progress: func(_ string, d, all int64) { done, total = d, all }}
	if err := a.fetch(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if done != int64(len(content)) || total != done {
		t.Errorf("progress told %d of %d for %d bytes", done, total, len(content))
	}
	fetched := requests.Load()
	if err := a.fetch(t.Context(), c); err != nil || requests.Load() != fetched {
		t.Errorf("the second time asked %d times more (%v)", requests.Load()-fetched, err)
	}
	// A damaged archive is detected and downloaded again.
	if err := os.Truncate(a.file, 10); err != nil {
		t.Fatal(err)
	}
	if err := a.fetch(t.Context(), c); err != nil || requests.Load() == fetched {
		t.Errorf("a damaged archive was taken (%v)", err)
	}
	dir := t.TempDir()
	if err := a.unpack(t.Context(), dir, c.Progress); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"bin/postgres": 0o755, "share/deep/file": 0o644, "share/deep": 0o755, "lib/link": 0o755} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v (%v)", name, info, err)
		}
	}
}

func TestFetchRefusesWhatHasAnotherChecksum(t *testing.T) {
	t.Parallel()
	content := jar(t)
	repo, _ := repository(t, content, hexSum([]byte("something else")))
	// One archive whose checksum is known here, and one that has only the repository's.
	for _, platform := range []string{"linux-amd64", "test"} {
		a := archive{file: filepath.Join(t.TempDir(), "a.jar"), platform: platform, release: "18.3.0"}
		err := a.fetch(t.Context(), Config{Repository: repo, Progress: func(string, int64, int64) {}})
		if posthaste.CodeOf(err) != posthaste.CodeRefused {
			t.Errorf("%s: %v", platform, err)
		}
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(a.file), "*")); len(left) > 0 {
			t.Errorf("%s: left behind: %q", platform, left)
		}
	}
}

func TestFetchWithoutANetwork(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.NotFoundHandler())
	missing := s.URL
	defer s.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for _, repo := range []string{missing, gone.URL} {
		a := archive{file: filepath.Join(t.TempDir(), "a.jar"), platform: "linux-amd64", release: "18.3.0"}
		err := a.fetch(t.Context(), Config{Repository: repo, Progress: func(string, int64, int64) {}})
		var e *posthaste.Error
		if !asError(err, &e) || e.Code != posthaste.CodeUnavailable || e.Hint == "" {
			t.Errorf("got: %v", err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a := archive{file: filepath.Join(t.TempDir(), "a.jar"), platform: "linux-amd64", release: "18.3.0"}
	if err := a.fetch(ctx, Config{Repository: missing}); !errors.Is(err, context.Canceled) {
		t.Errorf("after giving up: %v", err)
	}
}

func TestUnpackStaysInItsDirectory(t *testing.T) {
	t.Parallel()
	for _, entries := range [][]tar.Header{
		{{Name: "../outside", Typeflag: tar.TypeReg, Mode: 0o644}},
		{{Name: "way", Typeflag: tar.TypeSymlink, Linkname: ".."}, {Name: "way/outside", Typeflag: tar.TypeReg, Mode: 0o644}},
	} {
		base := t.TempDir()
		a := archive{file: filepath.Join(base, "a.jar")}
		if err := os.WriteFile(a.file, jar(t, entries...), 0o600); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(base, "dir")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := a.unpack(t.Context(), dir, func(string, int64, int64) {}); err == nil {
			t.Errorf("%v was unpacked", entries)
		}
		if _, err := os.Stat(filepath.Join(base, "outside")); err == nil {
			t.Errorf("%v was written outside", entries)
		}
	}
}

func TestReleasesHaveChecksums(t *testing.T) {
	t.Parallel()
	for _, release := range releases {
		if checksums["linux-amd64-"+release] == "" {
			t.Errorf("no checksum of linux-amd64-%s", release)
		}
	}
}
