package dashboard

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
)

// keptFragments is how many fragments of pages are kept.
const keptFragments = 200

// sharedPaths are the live pages that viewers share. They have no form and nothing of one viewer,
// and show what the store had at the time of the snapshot, or figures that are kept longer.
var sharedPaths = []string{"/{$}", "/queues", "/queues/{queue}", "/failing", "/workers"}

// shared keeps the fragments of live pages that were made for the present snapshot: viewers of the
// same page with the same rights get the same.
type shared struct {
	mu        sync.Mutex
	of        *snapshot
	fragments map[string][]byte
}

// get returns the fragment with a key for a snapshot, or nil.
func (s *shared) get(of *snapshot, key string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of != of {
		return nil
	}
	return s.fragments[key]
}

func (s *shared) put(of *snapshot, key string, fragment []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of != of {
		s.of, s.fragments = of, map[string][]byte{}
	}
	if len(s.fragments) < keptFragments {
		s.fragments[key] = fragment
	}
}

// follows reports whether the request is that of a page that follows the store, and that others
// share. It needs only what may have changed.
func (p *page) follows(route route) bool {
	return p.r.Method == http.MethodGet && p.r.Header.Get("HX-Request") != "" && slices.Contains(sharedPaths, route.path)
}

// serveShared writes the fragment that another viewer of the same page got for the present
// snapshot, or else serves the route and keeps its fragment.
func (d *dashboard) serveShared(p *page, route route) error {
	of, err := d.snapshots.look(p.ctx())
	if err != nil {
		return err
	}
	key := p.Base + p.r.URL.RequestURI()
	if p.Token != nil { // what a page shows depends on the scopes and queues, and not on the name
		key += fmt.Sprintf(" %q %q", slices.Sorted(slices.Values(p.Token.Scopes)), slices.Sorted(slices.Values(p.Token.Queues)))
	}
	if fragment := d.shared.get(of, key); fragment != nil {
		p.write(fragment)
		return nil
	}
	visit := *p.Visit // others may see the fragment
	visit.Actor, visit.CSRF, visit.Nonce = "", "", ""
	p.Visit = &visit
	p.keep = func(fragment []byte) { d.shared.put(of, key, fragment) }
	return route.serve(p)
}

// write writes a page or a fragment of it.
func (p *page) write(body []byte) {
	p.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	p.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = p.w.Write(body) // the caller is gone
}
