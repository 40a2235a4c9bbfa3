package catcher

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

const evil = `"><script>alert(1)</script><img src=x onerror=alert(2)>'` + "`" + `{{.}}javascript:alert(3)`

// evilMail has markup in every field.
const evilMail = "Subject: " + evil + "\r\nFrom: " + evil + " <x@example.com>\r\nTo: " + evil + "\r\nCc: " + evil + "\r\nReply-To: " + evil + "\r\nDate: " + evil + "\r\nMessage-Id: " + evil +
	"\r\nX-Evil: =?utf-8?q?" + "=3Cscript=3Ealert(4)=3C/script=3E" + "?=\r\nContent-Type: multipart/mixed; boundary=m\r\n\r\n" +
	"--m\r\n\r\n</pre>" + evil + "\r\n--m\r\nContent-Type: text/html\r\n\r\n</iframe>" + evil + "\r\n" +
	"--m\r\nContent-Type: <i>\r\nContent-Disposition: attachment; filename*=utf-8''%3Cscript%3E%22.html\r\n\r\n<script>\r\n--m--\r\n"

// No part of a mail becomes markup or runs as a script.
func TestPagesAreSafe(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	mustSend(t, dial(t, c), evilMail, `"<script>"@example.com`)
	for _, path := range []string{"/", "/?q=" + strings.ReplaceAll("%22><script>", "<", "%3C"), "/1", "/1/delete", "/delete"} {
		w := get(t, c, path, "text/html")
		if w.Code != 200 {
			t.Fatal(path, w.Code, w.Body)
		}
		if policy := w.Header().Get("Content-Security-Policy"); policy != policyPage("nonce-of-the-page") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: policy %q", path, policy)
		}
		checkSafe(t, path, w)
	}
	w := get(t, c, "/1/html", "text/html")
	if policy := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(policy, "sandbox; default-src 'none'") || strings.Contains(policy, "http") {
		t.Errorf("policy of the mail's HTML: %q", policy)
	}
	for _, path := range []string{"/1/raw", "/1/attachments/0"} {
		h := get(t, c, path, "text/html").Header()
		if !strings.HasPrefix(h.Get("Content-Disposition"), "attachment") || h.Get("X-Content-Type-Options") != "nosniff" || !strings.HasPrefix(h.Get("Content-Security-Policy"), "sandbox") {
			t.Errorf("%s: %v", path, h)
		}
	}
}

// checkSafe parses a page, and allows only what the pages have by themselves.
func checkSafe(t *testing.T, path string, w *httptest.ResponseRecorder) {
	t.Helper()
	doc, err := html.Parse(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	for node := range doc.Descendants() {
		has := map[string]string{}
		for _, a := range node.Attr {
			has[a.Key] = a.Val
			if strings.HasPrefix(a.Key, "on") || a.Key == "style" || strings.ContainsAny(a.Key, "<>\"'`{}()") {
				t.Errorf("%s: attribute %q of %s", path, a.Key, node.Data)
			}
			if (a.Key == "href" || a.Key == "src" || a.Key == "action") && !strings.HasPrefix(a.Val, "/at/") && !strings.HasPrefix(a.Val, "#") {
				t.Errorf("%s: %s leads to %q", path, a.Key, a.Val)
			}
		}
		switch node.Data {
		case "img", "object", "embed", "base", "svg":
			t.Errorf("%s: element %s", path, node.Data)
		case "iframe":
			if allowed, ok := has["sandbox"]; !ok || allowed != "" {
				t.Errorf("%s: the frame is not sandboxed: %v", path, has)
			}
		case "script", "link":
			if node.Type == html.ElementNode && (has["nonce"] != "nonce-of-the-page" || node.FirstChild != nil) {
				t.Errorf("%s: %s with %v", path, node.Data, has)
			}
		}
	}
}

// A viewer who may only read is offered no deletion, and cannot delete.
func TestReadersDeleteNothing(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	mustSend(t, dial(t, c), sample, "bob@example.com")
	reader := c.Handler(func(*http.Request) Place { return Place{Base: "/caught"} }, nil)
	do := func(method, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		reader.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
		return w
	}
	for _, path := range []string{"/", "/1"} {
		if w := do("GET", path); w.Code != 200 || strings.Contains(w.Body.String(), "elete") || strings.Contains(w.Body.String(), "Dashboard") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	for _, request := range []string{"GET /delete", "POST /delete", "DELETE /", "GET /1/delete", "POST /1/delete", "DELETE /1"} {
		method, path, _ := strings.Cut(request, " ")
		if w := do(method, path); w.Code != 403 || len(c.Mails()) != 1 {
			t.Errorf("%s: %d, %d mails are left", request, w.Code, len(c.Mails()))
		}
	}
}

// The page of a mail has its headers, also those that repeat or are folded, in their order.
func TestHeaders(t *testing.T) {
	t.Parallel()
	got := headersOf([]byte("Received: a\r\n b\r\nReceived:c\r\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\nX-Bad: \xff\r\n\r\nBody: no\r\n"))
	want := []field{{"Received", "a b"}, {"Received", "c"}, {"Subject", "Grüße"}, {"X-Bad", "\uFFFD"}}
	if len(got) != len(want) {
		t.Fatalf("%+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("header %d is %+v, want %+v", i, got[i], want[i])
		}
	}
	if got := headersOf([]byte("This is no header: x\r\n")); got != nil {
		t.Errorf("headers of a mail without any: %+v", got)
	}
}

// An open page is told to look again when a mail arrives, and lets the server stop.
func TestEvents(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	stopping := make(chan struct{})
	site := httptest.NewServer(c.Handler(func(*http.Request) Place { return Place{Stopping: stopping} }, nil))
	t.Cleanup(site.Close)
	r, err := http.NewRequestWithContext(t.Context(), "GET", site.URL+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := site.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	lines := bufio.NewScanner(got.Body)
	look := func() bool {
		for lines.Scan() {
			if lines.Text() == "event: look" {
				return true
			}
		}
		return false
	}
	if !look() {
		t.Fatal("the page does not look when it opens the stream")
	}
	client := dial(t, c)
	mustSend(t, client, sample, "bob@example.com")
	if !look() {
		t.Fatal("the page is not told about a mail")
	}
	mustSend(t, client, sample, "bob@example.com")
	if !look() {
		t.Fatal("the page is not told about a second mail")
	}
	close(stopping)
	if look() {
		t.Error("the stream goes on while the server stops")
	}
}
