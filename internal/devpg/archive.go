//go:build unix

package devpg

import (
	"archive/tar"
	"archive/zip"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ulikunitz/xz"

	"github.com/posthaste-mq/posthaste"
)

// checksums are the SHA-256 sums of known archives. For other versions the repository's
// checksum is used.
var checksums = map[string]string{
	"linux-amd64-14.18.0":   "d08a4c4703faf3f78ed74af72f1794d32ad3798f7dedf46abd383f809a99262b",
	"linux-amd64-18.3.0":    "1974c3a59c3ae010e9818e81637e425aad94eaac26e4ef533b42e081fe7ca345",
	"linux-arm64v8-18.3.0":  "1fb555a6602c13a113ab1f0cc9224d599948e85e51ac5f001393605505eaf78e",
	"darwin-arm64v8-18.3.0": "a18ec9ec6a905e04f5a08a8f7870bddadd635feb54dee332a3daf80fada3cb1a",
}

// publicRepository is Maven Central.
const publicRepository = "https://repo1.maven.org/maven2"

// stallPatience is how long a download may receive no data.
const stallPatience = time.Minute

// archive is a jar that contains a tar of PostgreSQL.
type archive struct {
	file     string // in the cache; created atomically
	platform string
	release  string
}

// fetch downloads the archive into the cache unless a complete one is there.
func (a archive) fetch(ctx context.Context, c Config) error {
	want := checksums[a.platform+"-"+a.release]
	if want == "" {
		raw, err := os.ReadFile(a.file + ".sha256")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the archive's checksum cannot be read: %w", err)
		}
		want = string(raw)
	}
	if want != "" {
		switch got, err := sumFile(a.file); {
		case err == nil && got == want:
			return nil
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("the archive of PostgreSQL cannot be read: %w", err)
		}
	}
	if err := a.download(ctx, a.url(c), want, c.Progress); err != nil {
		if ctx.Err() != nil || posthaste.CodeOf(err) != "" {
			return err
		}
		return &posthaste.Error{Code: posthaste.CodeUnavailable, Cause: err,
			Message: fmt.Sprintf("PostgreSQL %s cannot be fetched: %v", a.release, err),
			Hint:    "it is needed once; let this machine reach the Maven repository, name a mirror in POSTHASTE_MAVEN_REPOSITORY, or use PostgreSQL binaries of your own"}
	}
	return nil
}

func (a archive) url(c Config) string {
	base := cmp.Or(c.Repository, os.Getenv("POSTHASTE_MAVEN_REPOSITORY"), publicRepository)
	artifact := "embedded-postgres-binaries-" + a.platform
	return fmt.Sprintf("%s/io/zonky/test/postgres/%s/%s/%s-%s.jar", strings.TrimRight(base, "/"), artifact, a.release, artifact, a.release)
}

// download fetches url into the cache and checks its sum against want, or against the
// repository's checksum if want is empty.
func (a archive) download(ctx context.Context, url, want string, progress func(string, int64, int64)) error {
	fresh := want == ""
	if fresh {
		var sum strings.Builder
		if err := get(ctx, url+".sha256", &sum, func(string, int64, int64) {}); err != nil {
			return err
		}
		if want = strings.ToLower(strings.TrimSpace(sum.String())); len(want) != 2*sha256.Size {
			return fmt.Errorf("%s.sha256 contains no checksum", url)
		}
	}
	f, err := os.CreateTemp(filepath.Dir(a.file), filepath.Base(a.file)+".new-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	h := sha256.New()
	if err := get(ctx, url, io.MultiWriter(f, h), progress); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return &posthaste.Error{Code: posthaste.CodeRefused, Message: fmt.Sprintf("the content of %s is not as expected: its SHA-256 is %s and should be %s", url, got, want),
			Hint: "the download was tampered with or the repository is broken; try again or use another repository"}
	}
	if err := f.Close(); err != nil {
		return err
	}
	if fresh {
		if err := os.WriteFile(a.file+".sha256", []byte(want), 0o644); err != nil {
			return err
		}
	}
	return os.Rename(f.Name(), a.file)
}

// get copies the content of url, and fails if no data arrives for a while.
func get(ctx context.Context, url string, to io.Writer, progress func(string, int64, int64)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(stallPatience, func() { cancel(fmt.Errorf("no data for %v", stallPatience)) })
	defer stalled.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", url, resp.Status)
	}
	counted := &counter{r: resp.Body, total: max(resp.ContentLength, 0), tell: func(done, total int64) {
		stalled.Reset(stallPatience)
		progress(StageFetch, done, total)
	}}
	if _, err := io.Copy(to, counted); err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	return nil
}

// unpack writes the archive's files below dir.
func (a archive) unpack(ctx context.Context, dir string, progress func(string, int64, int64)) error {
	jar, err := zip.OpenReader(a.file)
	if err != nil {
		return err
	}
	defer jar.Close()
	for _, f := range jar.File {
		if !strings.HasSuffix(f.Name, ".txz") {
			continue
		}
		r, err := f.Open()
		if err != nil {
			return err
		}
		defer r.Close()
		size := int64(f.UncompressedSize64)
		counted := &counter{r: r, total: size, tell: func(done, total int64) { progress(StageUnpack, done, total) }}
		plain, err := xz.NewReader(counted)
		if err != nil {
			return err
		}
		return untar(ctx, tar.NewReader(plain), dir)
	}
	return fmt.Errorf("%s does not contain PostgreSQL", a.file)
}

func untar(ctx context.Context, from *tar.Reader, dir string) error {
	root, err := os.OpenRoot(dir) // prevents writing outside of dir
	if err != nil {
		return err
	}
	defer root.Close()
	for {
		h, err := from.Next()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		if err := untarOne(root, h, from); err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
}

func untarOne(root *os.Root, h *tar.Header, content io.Reader) error {
	name := filepath.Clean(h.Name)
	if err := mkdirAll(root, filepath.Dir(name)); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return mkdirAll(root, name)
	case tar.TypeSymlink:
		return root.Symlink(h.Linkname, name)
	case tar.TypeReg:
		mode := fs.FileMode(0o644)
		if h.Mode&0o100 != 0 {
			mode = 0o755
		}
		f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, content)
		return errors.Join(err, f.Chmod(mode), f.Close()) // independent of the umask
	}
	return nil // other kinds of entries are not needed
}

// mkdirAll creates directories that all users can enter, whatever the umask.
func mkdirAll(root *os.Root, name string) error {
	if name == "." {
		return nil
	}
	if info, err := root.Stat(name); err == nil && info.IsDir() {
		return nil
	}
	if err := mkdirAll(root, filepath.Dir(name)); err != nil {
		return err
	}
	if err := root.Mkdir(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return root.Chmod(name, 0o755)
}

func sumFile(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// counter counts the bytes read.
type counter struct {
	r           io.Reader
	done, total int64
	tell        func(done, total int64)
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.done += int64(n)
	c.tell(c.done, c.total)
	return n, err
}
