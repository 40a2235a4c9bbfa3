package catcher

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"testing"
)

func TestSearchAndDelete(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := start(t, Config{Dir: dir})
	client := dial(t, c)
	mustSend(t, client, sample, "bob@example.com", "b@xn--mnchen-3ya.de")
	mustSend(t, client, "Subject: Invoice 7\r\n\r\nPlease pay\r\n", "ada@example.com")
	mustSend(t, client, "Subject: Hello\r\n\r\nInvoices\r\n", "carl@example.com")
	ids := func(query string) (found string) {
		t.Helper()
		var list []mailJSON
		if err := json.Unmarshal(get(t, c, "/"+query, "application/json").Body.Bytes(), &list); err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			found += m.ID
		}
		return found
	}
	for query, want := range map[string]string{"": "321", "?q=": "321", "?q=INVOICE": "32", "?q=pay": "2", "?q=carl@": "3", "?q=m%C3%BCnchen": "1", "?q=gr%C3%BC%C3%9Fe": "1", "?q=missing": "", "?q=invoice&limit=1": "3"} {
		if got := ids(query); got != want {
			t.Errorf("%q finds mails %q, want %q", query, got, want)
		}
	}
	if page := get(t, c, "/?q=missing", "text/html").Body.String(); !strings.Contains(page, "None of the 3 caught mails") {
		t.Error(page)
	}
	do := func(method, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		pagesOf(c).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
		return w
	}
	if w := do("DELETE", "/2"); w.Code != 204 || ids("") != "31" {
		t.Error(w.Code, ids(""))
	}
	if w := do("DELETE", "/2"); w.Code != 404 {
		t.Error(w.Code)
	}
	if w := do("POST", "/3/delete"); w.Code != 303 || w.Header().Get("Location") != "/at/caught/" || ids("") != "1" {
		t.Error(w.Code, w.Header(), ids(""))
	}
	if w := do("GET", "/delete"); w.Code != 200 || ids("") != "1" || !strings.Contains(w.Body.String(), `value="token-of-the-form"`) {
		t.Error(w.Code, ids(""))
	}
	if w := do("POST", "/delete"); w.Code != 303 || ids("") != "" {
		t.Error(w.Code, ids(""))
	}
	mustSend(t, client, sample, "bob@example.com")
	if w := do("DELETE", "/"); w.Code != 204 || ids("") != "" {
		t.Error(w.Code, ids(""))
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 0 {
		t.Errorf("files are left: %v (%v)", files, err)
	}
}

// The page polls every two seconds, and the kept mails may be large: a search must not copy
// them. Not parallel: the test counts the allocations of the whole process.
func TestSearchCopiesNothing(t *testing.T) {
	c := start(t, Config{})
	large := strings.Repeat("Große\r\nRechnung\r\n", 50_000)
	mustSend(t, dial(t, c), "Content-Type: text/html; charset=utf-8\r\n\r\n"+large, "bob@example.com")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	page := get(t, c, "/?q=NOT+there", "text/html").Body.String()
	runtime.ReadMemStats(&after)
	if !strings.Contains(page, "None of the 1 caught mails") {
		t.Error(page)
	}
	if copied := after.TotalAlloc - before.TotalAlloc; copied > uint64(len(large))/4 {
		t.Errorf("a search in a mail of %d bytes allocates %d bytes", len(large), copied)
	}
}

func TestContains(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "a", "Größe", "ÀÉ ΣΑΣ", "aaab", "İstanbul", "K", "bad \xff byte", "日本"} {
		for _, text := range []string{"", "A", "größ", "é σ", "AAB", "i", "k", "te", "本", "ab", "\u0307"} {
			text = strings.ToLower(text)
			if got, want := contains(s, []rune(text)), strings.Contains(strings.ToLower(s), text); got != want {
				t.Errorf("%q contains %q: %t, want %t", s, text, got, want)
			}
		}
	}
}

// The HTML of a mail comes before its text.
func TestHTMLComesFirst(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	mustSend(t, dial(t, c), "Content-Type: multipart/alternative; boundary=m\r\n\r\n--m\r\n\r\nplain\r\n--m\r\nContent-Type: text/html\r\n\r\n<p>rich\r\n--m--\r\n", "bob@example.com")
	page := get(t, c, "/1", "text/html").Body.String()
	if rich, plain := strings.Index(page, "<iframe"), strings.Index(page, "<pre>plain"); rich < 0 || plain < rich {
		t.Error(page)
	}
}
