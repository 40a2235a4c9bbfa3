package catcher

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/smtp"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const sample = "From: =?utf-8?q?Zo=C3=AB?= <zoe@example.com>\r\nTo: bob@example.com\r\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\n" +
	"Message-Id: <1@example.com>\r\nMime-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=m\r\n\r\n" +
	"--m\r\nContent-Type: multipart/alternative; boundary=a\r\n\r\n" +
	"--a\r\nContent-Type: text/plain; charset=iso-8859-1\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\nGr=FC=DFe\r\n.\r\n--a\r\n" +
	"Content-Type: text/html; charset=utf-8\r\n\r\n<script>alert(1)</script>\r\n--a--\r\n" +
	"--m\r\nContent-Type: text/plain\r\nContent-Transfer-Encoding: base64\r\nContent-Disposition: attachment; filename*=utf-8''%C3%BC.txt\r\n\r\naGVsbG8=\r\n--m--\r\n"

func start(t *testing.T, cfg Config) *Catcher {
	t.Helper()
	c, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func dial(t *testing.T, c *Catcher) *smtp.Client {
	t.Helper()
	client, err := smtp.Dial(c.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// send sends a mail in one transaction.
func send(client *smtp.Client, raw string, to ...string) error {
	if err := client.Mail("zoe@example.com"); err != nil {
		return err
	}
	for _, r := range to {
		if err := client.Rcpt(r); err != nil {
			return err
		}
	}
	w, err := client.Data()
	if err != nil {
		return err
	}
	if _, err := io.WriteString(w, raw); err != nil {
		return err
	}
	return w.Close()
}

func mustSend(t *testing.T, client *smtp.Client, raw string, to ...string) {
	t.Helper()
	if err := send(client, raw, to...); err != nil {
		t.Fatal(err)
	}
}

func TestCatches(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	mustSend(t, dial(t, c), sample, "bob@example.com", "hidden@xn--mnchen-3ya.de", "用户@例え.jp")
	mails := c.Mails()
	if len(mails) != 1 {
		t.Fatalf("%d mails", len(mails))
	}
	m := mails[0]
	if m.From != "zoe@example.com" || strings.Join(m.To, " ") != "bob@example.com hidden@xn--mnchen-3ya.de 用户@例え.jp" || !m.SMTPUTF8 {
		t.Errorf("envelope %q %q %v", m.From, m.To, m.SMTPUTF8)
	}
	if m.Subject != "Grüße" || m.Text != "Grüße\n." || m.HTML != "<script>alert(1)</script>" || m.MessageID != "<1@example.com>" {
		t.Errorf("decoded %q %q %q %q", m.Subject, m.Text, m.HTML, m.MessageID)
	}
	if len(m.Attachments) != 1 || m.Attachments[0].Filename != "ü.txt" || string(m.Attachments[0].Content) != "hello" {
		t.Errorf("attachments %+v", m.Attachments)
	}
	if string(m.Raw) != sample {
		t.Errorf("raw %q", m.Raw)
	}
	if got, ok := c.Mail(m.ID); !ok || got.ID != m.ID {
		t.Error("not found by its id")
	}
}

func TestKeepsTheNewest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := start(t, Config{MaxMails: 3, Dir: dir})
	client := dial(t, c)
	for i := range 5 {
		mustSend(t, client, fmt.Sprintf("Subject: %d\r\n\r\nx\r\n", i), "bob@example.com")
	}
	small := start(t, Config{MaxBytes: 100})
	client = dial(t, small)
	mustSend(t, client, "Subject: a\r\n\r\n"+strings.Repeat("x", 60)+"\r\n", "bob@example.com")
	mustSend(t, client, "Subject: b\r\n\r\n"+strings.Repeat("x", 600)+"\r\n", "bob@example.com")
	for name, got := range map[string][]Mail{"2 3 4": c.Mails(), "b": small.Mails()} {
		if s := subjects(got); s != name {
			t.Errorf("kept %q, want %q", s, name)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 3 {
		t.Errorf("%d files (%v)", len(files), err)
	}
}

func subjects(mails []Mail) string {
	var list []string
	for _, m := range mails {
		list = append(list, m.Subject)
	}
	return strings.Join(list, " ")
}

func TestOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "mail")
	c := start(t, Config{Dir: dir})
	mustSend(t, dial(t, c), sample, "bob@example.com")
	mustSend(t, dial(t, c), "Subject: second\r\n\r\nx\r\n", "bob@example.com")
	before := c.Mails()
	// The catcher is not closed, as after a SIGKILL.
	if err := os.WriteFile(filepath.Join(dir, "0000000009.eml"), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	again := start(t, Config{Dir: dir})
	after := again.Mails()
	if fmt.Sprintf("%+v", after) != fmt.Sprintf("%+v", before) {
		t.Fatalf("after a restart\n%+v\nbefore\n%+v", after, before)
	}
	mustSend(t, dial(t, again), "Subject: third\r\n\r\nx\r\n", "bob@example.com")
	if got := again.Mails()[2].ID; got != "10" {
		t.Errorf("the next id is %q, want one never used", got)
	}
	info, err := os.Stat(filepath.Join(dir, "0000000001.eml"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("file %v (%v)", info, err)
	}
}

func TestTLSAndAuth(t *testing.T) {
	t.Parallel()
	c := start(t, Config{TLS: true, Username: "ada", Password: "secret"})
	client := dial(t, c)
	var reply *textproto.Error
	if err := send(client, sample, "bob@example.com"); !errors.As(err, &reply) || reply.Code != 530 {
		t.Fatalf("without a password: %v", err)
	}
	if ok, _ := client.Extension("AUTH"); ok {
		t.Error("a password is asked for without TLS")
	}
	config := c.ClientTLS()
	config.ServerName = "127.0.0.1"
	if err := client.StartTLS(config); err != nil {
		t.Fatal(err)
	}
	if err := client.Auth(smtp.PlainAuth("", "ada", "secret", "127.0.0.1")); err != nil {
		t.Fatal(err)
	}
	mustSend(t, client, sample, "bob@example.com")
	if m := c.Mails()[0]; !m.TLS || m.User != "ada" {
		t.Errorf("%+v", m)
	}
	other := dial(t, c)
	if err := other.StartTLS(&tls.Config{ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}); err == nil {
		t.Error("every client trusts the certificate")
	}
	third := dial(t, c)
	if err := third.StartTLS(config); err != nil {
		t.Fatal(err)
	}
	if err := third.Auth(smtp.PlainAuth("", "ada", "wrong", "127.0.0.1")); !errors.As(err, &reply) || reply.Code != 535 {
		t.Errorf("a wrong password: %v", err)
	}
}

func TestExtensionsCanBeLeftOut(t *testing.T) {
	t.Parallel()
	client := dial(t, start(t, Config{Without: []string{"SMTPUTF8", "8BITMIME"}}))
	for ext, want := range map[string]bool{"SMTPUTF8": false, "8BITMIME": false, "PIPELINING": true} {
		if got, _ := client.Extension(ext); got != want {
			t.Errorf("%s announced: %v", ext, got)
		}
	}
	if err := send(client, sample, "用户@例え.jp"); err == nil {
		t.Error("an address beyond ASCII was taken without SMTPUTF8")
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		fault Fault
		code  int // the client's reply code; 0: the connection is closed
		kept  int
	}{
		{"mail", Fault{Stage: StageMail, Code: 451}, 451, 0},
		{"rcpt", Fault{Stage: StageRcpt, Code: 550}, 550, 0},
		{"this recipient", Fault{Stage: StageRcpt, Recipient: "b@example.com", Code: 550}, 550, 0},
		{"other recipient", Fault{Stage: StageRcpt, Recipient: "c@example.com", Code: 550}, 250, 1},
		{"data", Fault{Stage: StageData, Code: 451}, 451, 0},
		{"end", Fault{Stage: StageEnd, Code: 554}, 554, 0},
		{"kept but refused", Fault{Stage: StageEnd, Code: 451, Kept: true}, 451, 1},
		{"drop at mail", Fault{Stage: StageMail, Drop: true}, 0, 0},
		{"drop at data", Fault{Stage: StageData, Drop: true}, 0, 0},
		{"drop at end", Fault{Stage: StageEnd, Drop: true}, 0, 0},
		{"answer lost", Fault{Stage: StageEnd, Drop: true, Kept: true}, 0, 1},
		{"drop after", Fault{Stage: StageEnd, DropAfter: true}, 250, 1},
		{"nothing", Fault{Stage: StageEnd}, 250, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			catcher := start(t, Config{})
			in := catcher.Inject(c.fault)
			client := dial(t, catcher)
			err := send(client, sample, "a@example.com", "b@example.com")
			var reply *textproto.Error
			switch {
			case c.code == 250 && err != nil,
				c.code == 0 && (err == nil || errors.As(err, &reply)),
				c.code > 250 && (!errors.As(err, &reply) || reply.Code != c.code):
				t.Errorf("answer %v, want %d", err, c.code)
			}
			if got := len(catcher.Mails()); got != c.kept {
				t.Errorf("%d mails kept, want %d", got, c.kept)
			}
			if want := map[bool]int{true: 0, false: 1}[c.name == "other recipient"]; in.Hits() != want {
				t.Errorf("%d hits, want %d", in.Hits(), want)
			}
			if c.fault.DropAfter {
				if err := client.Noop(); err == nil {
					t.Error("the connection is still there")
				}
			}
			if err := send(dial(t, catcher), sample, "a@example.com"); err != nil {
				t.Errorf("the fault struck twice: %v", err)
			}
		})
	}
}

func TestFaultAtConnect(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	c.Inject(Fault{Stage: StageConnect, Code: 421, Times: 2})
	for range 2 {
		var reply *textproto.Error
		if _, err := smtp.Dial(c.Addr()); !errors.As(err, &reply) || reply.Code != 421 {
			t.Fatal(err)
		}
	}
	c.Inject(Fault{Stage: StageConnect, Drop: true})
	if _, err := smtp.Dial(c.Addr()); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	c.Inject(Fault{Stage: StageHello, Code: 451})
	if err := dial(t, c).Noop(); err != nil {
		t.Errorf("HELO after a refused EHLO: %v", err)
	}
}

func TestHang(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	in := c.Inject(Fault{Stage: StageMail, Hang: true})
	client := dial(t, c)
	answered := make(chan error, 1)
	go func() { answered <- client.Mail("zoe@example.com") }()
	<-in.Reached()
	select {
	case err := <-answered:
		t.Fatalf("it was answered: %v", err)
	default:
	}
	in.Remove()
	in.Remove()
	if err := <-answered; err == nil {
		t.Error("it was answered")
	}
	in = c.Inject(Fault{Stage: StageData, Hang: true})
	client = dial(t, c)
	go func() { answered <- send(client, sample, "a@example.com") }()
	<-in.Reached()
	in.Remove()
	if err := <-answered; !errors.Is(err, io.EOF) || len(c.Mails()) != 0 {
		t.Errorf("after it hung at DATA: %v", err)
	}
	// Closing also releases a hanging client.
	in = c.Inject(Fault{Stage: StageMail, Hang: true})
	client = dial(t, c)
	go func() { answered <- client.Mail("zoe@example.com") }()
	<-in.Reached()
	if err := errors.Join(c.Close(), c.Close()); err != nil {
		t.Error(err)
	}
	if err := <-answered; err == nil {
		t.Error("it was answered")
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	looked := make(chan struct{}, 10)
	done := make(chan error, 1)
	go func() {
		done <- c.Wait(t.Context(), func(m []Mail) bool { looked <- struct{}{}; return len(m) == 2 })
	}()
	client := dial(t, c)
	<-looked
	mustSend(t, client, sample, "a@example.com")
	<-looked
	mustSend(t, client, sample, "a@example.com")
	if err := <-done; err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Wait(ctx, func([]Mail) bool { return false }); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func pagesOf(c *Catcher) http.Handler {
	return c.Handler(func(*http.Request) Place {
		return Place{Base: "/at/caught", Home: "/at/dashboard/", CSRF: "token-of-the-form", Nonce: "nonce-of-the-page", Deletes: true}
	}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "file "+r.URL.Path) }))
}

func get(t *testing.T, c *Catcher, path, accept string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	pagesOf(c).ServeHTTP(w, r)
	return w
}

func TestHTTP(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	const browser = "text/html,application/xhtml+xml,application/json;q=0.9,*/*;q=0.8"
	if w := get(t, c, "/", browser); w.Code != 200 || !strings.Contains(w.Body.String(), "Nothing caught yet") {
		t.Error(w.Code, w.Body)
	}
	if w := get(t, c, "/", "application/json"); strings.TrimSpace(w.Body.String()) != "[]" {
		t.Error(w.Body)
	}
	client := dial(t, c)
	mustSend(t, client, sample, "bob@example.com", "b@xn--mnchen-3ya.de")
	mustSend(t, client, "Subject: <script>alert('2')</script>\r\nFrom: \"<b>\" <x@example.com>\r\n\r\n</pre><img src=x>\xff\r\n", "bob@example.com")
	var list []mailJSON
	w := get(t, c, "/", "application/json")
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || len(list) != 2 || w.Header().Get("Content-Type") != "application/json" {
		t.Fatal(err, w.Body)
	}
	if list[0].Subject != "<script>alert('2')</script>" || list[0].Raw != "" || len(list[0].RawBase64) == 0 {
		t.Errorf("the newest is %+v", list[0])
	}
	if m := list[1]; m.Raw != sample || m.Text != "Grüße\n." || m.To[1] != "b@münchen.de" || m.From != "zoe@example.com" || m.ID != "1" {
		t.Errorf("the oldest is %+v", m)
	}
	var one mailJSON
	if err := json.Unmarshal(get(t, c, "/1", "application/json").Body.Bytes(), &one); err != nil || one.ID != "1" {
		t.Error(err, one)
	}
	if err := json.Unmarshal(get(t, c, "/?limit=1", "application/json").Body.Bytes(), &list); err != nil || len(list) != 1 || list[0].ID != "2" {
		t.Error(err, list)
	}
	for path, code := range map[string]int{"/?limit=x": 400, "/7": 404, "/1/attachments/1": 404, "/1/attachments/x": 404} {
		if w := get(t, c, path, browser); w.Code != code {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	if w := get(t, c, "/1/raw", browser); w.Body.String() != sample || w.Header().Get("Content-Type") != "message/rfc822" {
		t.Error(w.Header(), w.Body)
	}
	if w := get(t, c, "/1/attachments/0", browser); w.Body.String() != "hello" || w.Header().Get("Content-Type") != "application/octet-stream" {
		t.Error(w.Header(), w.Body)
	}
	if w := get(t, c, "/assets/style.css", browser); w.Body.String() != "file /style.css" {
		t.Error(w.Code, w.Body)
	}
}

func TestPortTaken(t *testing.T) {
	t.Parallel()
	c := start(t, Config{})
	if _, err := Start(Config{Addr: c.Addr()}); err == nil {
		t.Error("two catchers on one port")
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(sample))
	f.Add([]byte("Content-Type: multipart/mixed; boundary=a\r\n\r\n--a\r\nContent-Type: multipart/mixed; boundary=a\r\n\r\n--a\r\n\r\n--a--"))
	f.Add([]byte("Content-Type: text/plain; charset=utf-16\r\nContent-Transfer-Encoding: base64\r\n\r\n%%%"))
	f.Add([]byte("no header"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		deadline := time.Now().Add(10 * time.Second)
		m := decode(raw)
		m.ID, m.To = "1", []string{"a"}
		if _, err := json.Marshal(m.json()); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatal("too slow")
		}
	})
}
