// Package dashboard serves web pages that show and operate a store: queues, messages with all
// their attempts, dead letters, schedules, workers and the log of operators' actions. The pages
// are plain HTML and work without JavaScript; scripts only keep them up to date.
//
// [Handler] serves the pages in your own program. The command "posthaste serve" serves them at
// /dashboard. Sign-in, sessions and CSRF tokens are those of package server. Each page and each
// action checks the scopes of the caller's token.
package dashboard

import (
	"bytes"
	"cmp"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/server"
)

// Config configures the dashboard. The zero value is a dashboard that asks for a token of the
// engine.
type Config struct {
	// Environment is shown in a banner on each page, for example "production".
	Environment string
	// CaughtMail is the address of pages of caught mails, relative to the dashboard, such as
	// "../caught/". The navigation links to it for viewers who may read mails. "" links to none.
	CaughtMail string
	// Timeout limits the time of one page; the default is 30 s.
	Timeout time.Duration

	// The other fields are for [Handler] alone.

	// Path is the path at which the program serves the handler, such as "/admin/posthaste"; the
	// default is "/".
	Path string
	// Tokens may sign in, in addition to the tokens that the engine stores.
	Tokens []posthaste.Token
	// Open admits every caller until the first token is added. Set it only where no other
	// machine can reach the program.
	Open bool
	// Pages configures sessions and reverse proxies.
	Pages server.Pages
	// Logger receives one record per request and per failure; the default discards them.
	Logger *slog.Logger
}

// Handler returns the dashboard of an engine with its own page for signing in, for a program's
// mux:
//
//	mux.Handle("/admin/posthaste/", handler)
func Handler(engine posthaste.Store, config Config) (http.Handler, error) {
	return server.NewPages(server.Config{
		Engine: engine, Logger: config.Logger, Tokens: config.Tokens, RequireToken: !config.Open, Pages: config.Pages,
		Mount: map[string]server.Mount{cmp.Or(config.Path, "/"): Mount(engine, config)},
	})
}

// Mount returns the dashboard for [server.Config.Mount].
func Mount(engine posthaste.Store, config Config) server.Mount {
	timeout := config.Timeout
	if timeout <= 0 {
		timeout = 30 * time.Second
	}
	d := &dashboard{source: source{engine: engine, can: engine.Capabilities(), snapshots: newSnapshots(engine, timeout), figures: newFigures(engine, timeout), environment: config.Environment, caughtMail: config.CaughtMail}, timeout: timeout}
	return server.Mount{Handler: d.mux(), Scope: server.ScopeRead, Queues: true}
}

// dashboard serves the pages of one engine.
type dashboard struct {
	source
	timeout time.Duration
	// streams counts the open streams of events.
	streams atomic.Int64
	forms   forms
	shared  shared
	bulks   bulks
}

// showAsset serves a file of assets.
func showAsset(p *page) error {
	a, ok := assets()[p.r.PathValue("file")]
	if !ok {
		return notFound("There is no file at this address.")
	}
	h := p.w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("Content-Length", strconv.Itoa(len(a.content)))
	h.Set("Cache-Control", "private, max-age=31536000, immutable")
	_, _ = p.w.Write(a.content) // the caller is gone
	return nil
}

// Assets serves the style sheet and the scripts of the pages by name, such as /style.css, for other
// pages that look and follow their data in the same way.
func Assets() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		a, ok := assets()[name]
		if !ok || r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Type", a.kind)
		h.Set("ETag", strconv.Quote(a.version))
		h.Set("Cache-Control", "private, no-cache")
		h.Set("X-Content-Type-Options", "nosniff")
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(a.content))
	})
}

// routes returns every page and action.
func (d *dashboard) routes() []route {
	routes := []route{
		{"GET", "/{$}", server.ScopeRead, true, d.showOverview},
		{"GET", "/queues", server.ScopeRead, true, d.showQueues},
		{"GET", "/queues/{queue}", server.ScopeRead, false, d.showQueue},
		{"GET", "/queues/{queue}/options", server.ScopeAdmin, false, d.askOptions},
		{"GET", "/queues/{queue}/send", server.ScopeSend, false, d.askSend},
		{"POST", "/queues/{queue}/send", server.ScopeSend, false, d.send},
		{"GET", "/search", server.ScopeRead, true, d.search},
		{"GET", "/messages", server.ScopeRead, true, d.showMessages},
		{"GET", "/messages/{id}", server.ScopeRead, true, d.showMessage},
		{"GET", "/messages/{id}/edit", server.ScopeOperate, true, d.askEdit},
		{"POST", "/messages/{id}/edit", server.ScopeOperate, true, d.edit},
		{"GET", "/bulk", server.ScopeRead, true, d.showBulks},
		{"GET", "/bulk/{bulk}", server.ScopeRead, true, d.showBulk},
		{"POST", "/bulk/{bulk}/stop", server.ScopeOperate, true, d.stopBulk},
		{"GET", "/messages/{id}/preview", server.ScopeReadPayload, true, d.previewEmail},
		{"GET", "/messages/{id}/payload", server.ScopeReadPayload, true, d.downloadPayload},
		{"GET", "/failing", server.ScopeRead, true, d.showFailing},
		{"GET", "/dead-letters", server.ScopeRead, true, d.showDeadLetters},
		{"GET", "/emails", server.ScopeRead, true, d.showEmails},
		{"GET", "/schedules", server.ScopeRead, false, d.showSchedules},
		{"GET", "/relays", server.ScopeRead, false, d.showRelays},
		{"GET", "/workers", server.ScopeRead, false, d.showWorkers},
		{"GET", "/audit", server.ScopeRead, false, d.showAudit},
		{"GET", "/tokens", server.ScopeAdmin, false, d.showTokens},
		{"GET", "/events", server.ScopeRead, true, d.streamEvents},
		{"GET", "/assets/{file}", server.ScopeRead, true, showAsset},
	}
	for _, a := range d.actions() {
		routes = append(routes, route{"GET", a.path, a.scope, a.own, d.ask(a)}, route{"POST", a.path, a.scope, a.own, d.perform(a)})
	}
	return routes
}

func (d *dashboard) mux() http.Handler {
	mux := http.NewServeMux()
	for _, r := range d.routes() {
		mux.HandleFunc(r.method+" "+r.path, func(w http.ResponseWriter, request *http.Request) { d.open(w, request, r) })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		server.VisitOf(r.Context()).Fail(w, r, &posthaste.Error{Code: posthaste.CodeNotFound, Message: "There is no page at this address."})
	})
	return mux
}
