package server

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"html/template"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/wire"
)

// Mount is a handler of pages for browsers. [VisitOf] tells it about the caller. Its requests
// have paths below its mount: "/" is its start page. Forms post to it with the field csrf.
type Mount struct {
	Handler http.Handler
	// Scope is the scope that every caller needs; the default is admin. The handler checks
	// further scopes by itself.
	Scope Scope
	// Queues reports that the handler checks [Visit.AllowsQueue] wherever it shows or changes
	// something. Without it, tokens that are limited to some queues are rejected.
	Queues bool
}

// maxForm is the largest form in bytes.
const maxForm = 4 << 20

//go:embed pages
var pageFiles embed.FS

var pageTemplate = sync.OnceValue(func() *template.Template { return template.Must(template.ParseFS(pageFiles, "pages/page.html")) })

// mounts adds the mounted pages to the mux, and signing in and out below each.
func (s *Server) mounts(mux *http.ServeMux, mounts map[string]Mount) {
	s.cookiePath = sharedPath(mounts)
	for path, m := range mounts {
		path = strings.TrimRight(path, "/")
		page := s.mounted(path, m)
		mux.Handle(path+"/", page)
		if path != "" {
			mux.Handle(path, page)
		}
	}
	if home := s.pages.Home; home != "" {
		mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
			exchangeOf(r).route = &route{}
			front, _ := s.pages.front(r) // a wrong user is reported by the page
			http.Redirect(w, r, front.prefix+strings.TrimSuffix(home, "/")+"/", http.StatusFound)
		})
	}
}

// sharedPath returns the path that all mounts have in common: a browser that signs in at one of
// them is signed in at all.
func sharedPath(mounts map[string]Mount) string {
	if len(mounts) == 1 {
		for path := range mounts {
			return cmp.Or(strings.TrimRight(path, "/"), "/")
		}
	}
	return "/"
}

// mounted serves one mount.
func (s *Server) mounted(path string, m Mount) http.Handler {
	route := &route{scope: cmp.Or(m.Scope, ScopeAdmin), queues: m.Queues, body: maxForm}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		exchangeOf(r).route = route
		visit := &Visit{Nonce: rand.Text(), Stopping: s.stopping, fail: s.failPage}
		pageHeaders(w.Header(), visit.Nonce)
		front, err := s.pages.front(r)
		visit.Base = front.prefix + path
		below := http.StripPrefix(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "" {
				r.URL.Path = "/"
			}
			if err == nil {
				err = s.serveMount(w, r, m, visit, front)
			}
			if err != nil {
				s.failPage(w, r, visit, err)
			}
		}))
		below.ServeHTTP(w, r)
	})
}

// serveMount admits the caller and passes the request on. The path of r is the one below the
// mount.
func (s *Server) serveMount(w http.ResponseWriter, r *http.Request, m Mount, visit *Visit, front front) error {
	is := s.sealer.sessionOf(r)
	if is == nil {
		if crossed(r) {
			return bounce(w, visit, r)
		}
		is = s.sealer.begin("")
		if wantsPage(r) {
			s.sealer.setCookie(w, r, front.prefix+s.cookiePath, front.secure, is)
		}
	}
	visit.CSRF = s.sealer.token(is, front.user)
	admitErr := s.admitPage(r, visit, is, front)
	if admitErr == nil {
		exchangeOf(r).caller = visit.Token
		admitErr = s.limitToken(w, visit.Token)
	}
	signs := r.URL.Path == "/sign-in" || r.URL.Path == "/sign-out"
	if admitErr != nil && !signs {
		return admitErr
	}
	if err := readForm(w, r); err != nil {
		return err
	}
	if err := checkForm(r, visit, is, front); err != nil {
		return err
	}
	if signs {
		return s.sign(w, r, visit, front, admitErr)
	}
	visit.admitted = true
	ctx := context.WithValue(posthaste.WithActor(r.Context(), visit.Actor), visitKey{}, visit)
	m.Handler.ServeHTTP(w, r.WithContext(ctx))
	return nil
}

// admitPage finds the caller: a program with a bearer token, a user that a proxy has signed in, or
// a browser that has signed in. It sets the caller's fields of the visit.
func (s *Server) admitPage(r *http.Request, visit *Visit, is *session, front front) error {
	route := exchangeOf(r).route
	visit.Actor = "http"
	fault := unauthorized("", "sign in with a token, or send the header Authorization: Bearer TOKEN", "")
	var err error
	switch {
	case front.user != "": // first: proxies also pass on the Authorization that they checked themselves
		visit.Token, visit.Actor = &posthaste.Token{Name: front.user, Scopes: s.pages.UserScopes}, "user:"+front.user
		return allowed(visit.Token, r, route)
	case len(r.Header.Values("Authorization")) > 0:
		visit.Token, err = s.authorize(r, route)
	default:
		visit.Token, err = s.admit(r, route, is.Secret, fault)
		visit.SignedIn = visit.Token != nil
	}
	if err == nil && visit.Token == nil && s.pages.UserHeader != "" {
		return fault // where proxies name the users, only those and holders of tokens see pages
	}
	if visit.Token != nil {
		visit.Actor = senderOf(visit.Token)
	}
	return err
}

// readForm reads the fields of a form that is posted.
func readForm(w http.ResponseWriter, r *http.Request) error {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if r.Method != http.MethodPost || err != nil || kind != "application/x-www-form-urlencoded" {
		return nil
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return bodyTooLarge(maxForm)
		}
		return posthaste.Invalidf("", "the form could not be read completely")
	}
	return nil
}

// checkForm rejects requests that change something without the CSRF token of their session. A
// bearer token proves that the request comes from no form. Forms cannot send other methods than
// POST, so these need it only from browsers that are signed in.
func checkForm(r *http.Request, visit *Visit, is *session, front front) error {
	switch {
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		return nil
	case len(r.Header.Values("Authorization")) > 0 && front.user == "" && visit.Token != nil:
		return nil
	case r.Method != http.MethodPost && is.Secret == "" && front.user == "":
		return nil
	}
	if !sameText(cmp.Or(r.Header.Get("X-CSRF-Token"), r.PostForm.Get("csrf")), visit.CSRF) {
		return &posthaste.Error{Code: posthaste.CodeDenied, Field: "csrf", Message: "the CSRF token of the form does not belong to this session; nothing was changed",
			Hint: "load the page again and repeat the action; allow cookies for this site"}
	}
	return nil
}

// sign serves the pages below a mount that begin and end sessions. asks is the error of the
// present caller, or nil.
func (s *Server) sign(w http.ResponseWriter, r *http.Request, visit *Visit, front front, asks error) error {
	next := localPath(cmp.Or(r.PostForm.Get("next"), r.URL.Query().Get("next"))) // FormValue would store files
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost:
		w.Header().Set("Allow", "GET, HEAD, POST")
		return wrongMethod(r, w.Header().Get("Allow"))
	case r.URL.Path == "/sign-out" && r.Method == http.MethodPost:
		s.sealer.setCookie(w, r, front.prefix+s.cookiePath, front.secure, nil)
		http.Redirect(w, r, visit.Base+"/sign-in", http.StatusSeeOther)
		return nil
	case r.URL.Path == "/sign-out":
		http.Redirect(w, r, visit.Base+"/", http.StatusSeeOther)
		return nil
	case r.Method != http.MethodPost && asks == nil && visit.Token == nil:
		http.Redirect(w, r, visit.Base+next, http.StatusSeeOther) // no token is required
		return nil
	case r.Method != http.MethodPost:
		return s.showSignIn(w, visit, next, http.StatusOK, nil)
	}
	secret := strings.TrimSpace(r.PostForm.Get("token"))
	token, err := s.admitSecret(r, secret)
	if err != nil {
		e := classify(r, err)
		return s.showSignIn(w, visit, next, cmp.Or(statusOfError(err), statusOf(e)), e)
	}
	if token != nil { // else the server requires none
		s.sealer.setCookie(w, r, front.prefix+s.cookiePath, front.secure, s.sealer.begin(secret))
	}
	http.Redirect(w, r, visit.Base+next, http.StatusSeeOther)
	return nil
}

// maxCookieSecret keeps the cookie below the 4,096 bytes that browsers accept.
const maxCookieSecret = 2048

func (s *Server) admitSecret(r *http.Request, secret string) (*posthaste.Token, error) {
	if !isSecret(secret) || len(secret) > maxCookieSecret {
		return nil, unauthorized("invalid_request", "the text is not a token", "check that it was copied completely, without quotes and line breaks")
	}
	return s.admit(r, exchangeOf(r).route, secret, nil)
}

func statusOfError(err error) int {
	if found, ok := errors.AsType[*httpError](err); ok {
		return found.status
	}
	return 0
}

// localPath returns a path below the mount to which a browser goes on after signing in; "/" for
// anything that could lead to another site.
func localPath(next string) string {
	u, err := url.Parse(next)
	if err != nil || len(next) > 2048 || u.IsAbs() || u.Host != "" || !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") || strings.Contains(next, `\`) {
		return "/"
	}
	return next
}

// shownPage is the data of the page template.
type shownPage struct {
	*Visit
	Title, Error, Hint, Next, RequestID string
	// Reload is the address that the page loads at once, or "".
	Reload        string
	SignIn, Again bool
}

func (s *Server) showSignIn(w http.ResponseWriter, visit *Visit, next string, status int, failed *posthaste.Error) error {
	page := shownPage{Visit: visit, Title: "Sign in", Next: next, SignIn: true}
	if failed != nil {
		page.Error, page.Hint = failed.Message, wire.Hint(failed, wire.CLI)
	}
	return writePage(w, status, page)
}

func writePage(w http.ResponseWriter, status int, page shownPage) error {
	var body bytes.Buffer
	if err := pageTemplate().Execute(&body, page); err != nil {
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(body.Len()))
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // the caller is gone
	return nil
}

// failPage answers with an error. Browsers without a session are led to the page for signing in.
func (s *Server) failPage(w http.ResponseWriter, r *http.Request, visit *Visit, err error) {
	if !wantsPage(r) {
		s.writeError(w, r, err)
		return
	}
	e := classify(r, err)
	status := cmp.Or(statusOfError(err), statusOf(e))
	s.logFailure(r, status, e, err)
	switch {
	case status == http.StatusUnauthorized && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		http.Redirect(w, r, visit.Base+"/sign-in?next="+url.QueryEscape(addressOf(r)), http.StatusSeeOther)
		return
	case status == http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", `Bearer realm="posthaste"`)
		e = &posthaste.Error{Message: "The session has ended, and nothing was changed.", Hint: "Sign in and repeat the action."}
		_ = s.showSignIn(w, visit, "/", status, e)
		return
	case status == http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	}
	_ = writePage(w, status, shownPage{Visit: visit, Title: cmp.Or(titles[e.Code], http.StatusText(status)), Error: e.Message, Hint: wire.Hint(e, wire.CLI),
		RequestID: exchangeOf(r).id, Again: statusOfError(err) == http.StatusForbidden})
}

// pageHeaders keeps pages out of caches and frames, and allows only scripts and styles with the
// nonce.
func pageHeaders(h http.Header, nonce string) {
	h.Set("Cache-Control", "no-store")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer, browsers send forms without an origin
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'nonce-"+nonce+"'; style-src 'nonce-"+nonce+"'; img-src 'self'; connect-src 'self'; "+
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
}

// crossed reports whether a browser comes by a link on another site. It then sends no SameSite
// cookie, even if it has one.
func crossed(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return r.Method == http.MethodGet && wantsPage(r) && (site == "cross-site" || site == "same-site")
}

// bounce answers with a page that loads itself again, so that the browser sends its cookie. A new
// session would replace the one of a browser that is signed in.
func bounce(w http.ResponseWriter, visit *Visit, r *http.Request) error {
	return writePage(w, http.StatusOK, shownPage{Visit: visit, Title: "Opening Posthaste", Reload: visit.Base + localPath(addressOf(r))})
}

// addressOf returns the address of a request below its mount. Its path stays encoded: after
// decoding it may begin with two slashes, which to a browser is another host.
func addressOf(r *http.Request) string {
	address := r.URL.EscapedPath()
	if r.URL.RawQuery != "" {
		address += "?" + r.URL.RawQuery
	}
	return address
}

// wantsPage reports whether the caller is a browser that shows pages.
func wantsPage(r *http.Request) bool {
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		if media, _, _ := mime.ParseMediaType(part); media == "text/html" {
			return true
		}
	}
	return false
}
