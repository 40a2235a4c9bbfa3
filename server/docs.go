package server

import (
	"embed"
	"net/http"
	"path"
	"strconv"
)

// docsFiles is the page that shows openapi.json, with its style and script. It loads nothing
// from elsewhere.
//
//go:embed docs
var docsFiles embed.FS

var docsTypes = map[string]string{".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}

// showDocs serves a file of docsFiles.
func (s *Server) showDocs(w http.ResponseWriter, r *http.Request) error {
	name := "docs/docs.html"
	if r.URL.Path != "/docs" {
		name = "docs/" + path.Base(r.URL.Path)
	}
	file, err := docsFiles.ReadFile(name)
	if err != nil {
		return notRouted(r)
	}
	h := w.Header()
	h.Set("Content-Type", docsTypes[path.Ext(name)])
	h.Set("Content-Length", strconv.Itoa(len(file)))
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	_, _ = w.Write(file)
	return nil
}
