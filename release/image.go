package main

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is the user of the image. It owns no file.
const user = "65532"

// image writes an archive of an OCI layout with the image of each processor. No Docker engine is
// needed: an image is a tar archive and two JSON documents.
func (r release) image() error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range r.platforms {
		if p.os != "linux" {
			continue
		}
		image, err := r.imageOf(p)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}}})
	}
	folder := filepath.Join(r.work, "image")
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	// docker load and ctr import read the first name, skopeo and podman the second.
	names := map[string]string{"io.containerd.image.name": "docker.io/library/posthaste:" + r.version, "org.opencontainers.image.ref.name": r.version}
	if err := path.AppendIndex(index, layout.WithAnnotations(names)); err != nil {
		return err
	}
	files, err := filesOf(folder)
	if err != nil {
		return err
	}
	packed, err := tarred(files, r.time)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dist, "posthaste-"+r.version+"-image.tar"), packed, 0o644)
}

// filesOf returns all files below a folder.
func filesOf(folder string) ([]file, error) {
	var found []file
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == folder {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			found = append(found, file{name: filepath.ToSlash(name) + "/", mode: 0o755})
			return nil
		}
		content, err := os.ReadFile(path)
		found = append(found, file{filepath.ToSlash(name), 0o644, content})
		return err
	})
	return found, err
}

func (r release) imageOf(p platform) (v1.Image, error) {
	layer, err := r.layer(p)
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: r.time}
	labels := map[string]string{
		"org.opencontainers.image.title":    "posthaste",
		"org.opencontainers.image.source":   "https://" + module,
		"org.opencontainers.image.version":  r.version,
		"org.opencontainers.image.revision": r.commit,
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, MediaType: types.OCILayer, History: v1.History{Created: created, CreatedBy: "make release"}})
	if err != nil {
		return nil, err
	}
	image, err = mutate.ConfigFile(image, func() *v1.ConfigFile {
		config, _ := image.ConfigFile()
		config = config.DeepCopy()
		config.OS, config.Architecture, config.Created = p.os, p.arch, created
		config.Config = v1.Config{
			User: user + ":" + user, Entrypoint: []string{"/posthaste"},
			Cmd: []string{"serve"},
			// Read by the server and by the health check. Beyond loopback the server starts only
			// if a token is given or stored.
			Env:          []string{"PATH=/", "HOME=/", "POSTHASTE_LISTEN=0.0.0.0:8484"},
			ExposedPorts: map[string]struct{}{"8484/tcp": {}}, StopSignal: "SIGTERM", Labels: labels,
			// Docker and podman run it. Kubernetes ignores it: the chart has probes.
			Healthcheck: &v1.HealthConfig{Test: []string{"CMD", "/posthaste", "healthcheck"}, Interval: 10 * time.Second, Timeout: 5 * time.Second, StartPeriod: 10 * time.Second, Retries: 3},
		}
		return config
	}())
	return image, err
}

// layer returns the only layer: the program, certificates, and the names of the users.
func (r release) layer(p platform) (v1.Layer, error) {
	program, err := os.ReadFile(r.built(p))
	if err != nil {
		return nil, err
	}
	license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	packed, err := tarred([]file{
		{"posthaste", 0o755, program},
		{"LICENSE", 0o644, license},
		{"etc/", 0o755, nil},
		{"etc/passwd", 0o644, []byte("root:x:0:0:root:/:/sbin/nologin\nposthaste:x:" + user + ":" + user + "::/:/sbin/nologin\n")},
		{"etc/group", 0o644, []byte("root:x:0:\nposthaste:x:" + user + ":\n")},
		{"etc/ssl/", 0o755, nil},
		{"etc/ssl/certs/", 0o755, nil},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, certificates()},
	}, r.time)
	if err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(packed)), nil },
		tarball.WithCompressionLevel(9), tarball.WithMediaType(types.OCILayer))
}

// certificates returns the certificate authorities that Mozilla trusts without constraints. A
// file of certificates cannot state a constraint.
func certificates() []byte {
	var file bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&file, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate})
		}
	}
	return file.Bytes()
}

// chart writes the Helm chart with the release's version.
func (r release) chart() error {
	folder := filepath.Join(r.root, "deploy/helm/posthaste")
	files, err := filesOf(folder)
	if err != nil {
		return err
	}
	stamped := false
	for i := range files {
		if files[i].name == "Chart.yaml" {
			files[i].content = []byte(strings.NewReplacer(
				"version: 0.0.0\n", "version: "+r.version+"\n",
				"appVersion: dev\n", "appVersion: "+r.version+"\n").Replace(string(files[i].content)))
			stamped = bytes.Contains(files[i].content, []byte("appVersion: "+r.version))
		}
		files[i].name = "posthaste/" + files[i].name
	}
	if !stamped {
		return errors.New("deploy/helm/posthaste/Chart.yaml has no line appVersion: dev")
	}
	packed, err := gzipped(tarred(files, r.time))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dist, "posthaste-"+r.version+".tgz"), packed, 0o644)
}

// compose writes the compose file with the name of the release's image.
func (r release) compose() error {
	const image = "posthaste:dev"
	file, err := os.ReadFile(filepath.Join(r.root, "deploy/compose.yaml"))
	if err != nil {
		return err
	}
	if !bytes.Contains(file, []byte(image)) {
		return fmt.Errorf("deploy/compose.yaml does not name the image %s", image)
	}
	return os.WriteFile(filepath.Join(r.dist, "compose.yaml"), bytes.ReplaceAll(file, []byte(image), []byte("posthaste:"+r.version)), 0o644)
}
