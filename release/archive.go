package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"cmp"
	"compress/gzip"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// file is a file of an archive. A name that ends with a slash is a folder.
type file struct {
	name    string
	mode    fs.FileMode
	content []byte
}

// archive writes the program with its license, and on Linux with its units and its container file.
func (r release) archive(p platform) error {
	program, err := os.ReadFile(r.built(p))
	if err != nil {
		return err
	}
	folder := r.name(p) + "/"
	files := []file{{folder + filepath.Base(r.built(p)), 0o755, program}}
	sources := []string{"LICENSE", "README.md", "CHANGELOG.md"}
	if p.os == "linux" {
		sources = append(sources, "deploy/Containerfile", "deploy/posthaste.env", "deploy/posthaste-serve.service", "deploy/posthaste-worker.service")
	}
	for _, source := range sources {
		content, err := os.ReadFile(filepath.Join(r.root, source))
		if err != nil {
			return err
		}
		files = append(files, file{folder + filepath.Base(source), 0o644, content})
	}
	if p.os == "windows" {
		packed, err := r.zipped(files)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(r.dist, r.name(p)+".zip"), packed, 0o644)
	}
	packed, err := gzipped(tarred(files, r.time))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dist, r.name(p)+".tar.gz"), packed, 0o644)
}

// tarred returns a tar archive, sorted by name, whose files belong to root.
func tarred(files []file, when time.Time) ([]byte, error) {
	files = slices.SortedFunc(slices.Values(files), func(a, b file) int { return cmp.Compare(a.name, b.name) })
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for _, f := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: int64(f.mode), Size: int64(len(f.content)), ModTime: when, Format: tar.FormatPAX}
		if strings.HasSuffix(f.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return packed.Bytes(), err
}

// gzipped returns content compressed, without a name or a time.
func gzipped(content []byte, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	err = w.Close()
	return packed.Bytes(), err
}

// zipped returns a zip archive.
func (r release) zipped(files []file) ([]byte, error) {
	var packed bytes.Buffer
	w := zip.NewWriter(&packed)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: r.time}
		h.SetMode(f.mode)
		entry, err := w.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := entry.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return packed.Bytes(), err
}
