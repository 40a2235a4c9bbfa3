package smtp

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/email"
	"github.com/posthaste-mq/posthaste/internal/catcher"
	"github.com/posthaste-mq/posthaste/internal/testrun"
)

// understood is the content of a mail as a parser reads it, or must read it.
type understood struct {
	Texts     map[string]string  `json:"texts"`
	Addresses map[string][]named `json:"addresses"`
	Parts     []readPart         `json:"parts"`
}

type named struct {
	Name    string `json:"name"`
	Address string `json:"address"`
}

type readPart struct {
	Type     string `json:"type"`
	Attached bool   `json:"attached"`
	Filename string `json:"filename"`
	Content  []byte `json:"content"`
}

func (p readPart) String() string {
	return fmt.Sprintf("%s %t %q %q", p.Type, p.Attached, p.Filename, p.Content[:min(len(p.Content), 300)])
}

// letter is a generated mail.
type letter struct {
	mail  email.Email
	want  understood
	field string // that must be refused; empty if the mail must be sent
}

// TestFT4_MailHeaders delivers generated mails, some of which must be refused. The
// parsers of Go and Python must read each delivered mail as it was sent, and no refused
// one may fail a neighbor.
func TestFT4_MailHeaders(t *testing.T) {
	t.Parallel()
	n, seed := 200, uint64(4)
	if testrun.Night() {
		n, seed = 10_000, rand.Uint64()
	}
	t.Logf("%d mails, seed %d", n, seed)
	g := &generator{rand.New(rand.NewPCG(seed, 4))}
	c := startCatcher(t, catcher.Config{MaxMails: n})
	s := newSink(t, c.Addr(), "")
	letters := make([]letter, n)
	batch := make([]posthaste.RawDelivery, n)
	for i := range letters {
		letters[i] = g.letter()
		batch[i] = delivery(t, &letters[i].mail)
		batch[i].MessageID = posthaste.MessageID(i + 1)
	}
	sent := map[string]int{} // by Message-ID
	for i, r := range s.Deliver(t.Context(), batch) {
		l := &letters[i]
		switch {
		case l.field != "" && (!posthaste.IsPermanent(r.Err) || !strings.Contains(r.Err.Error(), l.field)):
			t.Errorf("mail %d has the result %v, want it rejected because of %s", i, r.Err, l.field)
		case l.field == "" && r.Err != nil:
			t.Errorf("mail %d has the result %v: %q", i, r.Err, batch[i].Payload)
		case l.field == "":
			var receipt email.Receipt
			if err := json.Unmarshal(r.Receipt, &receipt); err != nil {
				t.Fatal(err)
			}
			sent[receipt.MessageID] = i
		}
	}
	mails := c.Mails()
	if len(mails) != len(sent) {
		t.Fatalf("%d mails arrived, but %d were sent", len(mails), len(sent))
	}
	byPython := readByPython(t, mails)
	for i, m := range mails {
		l := &letters[sent[m.MessageID]]
		for parser, got := range map[string]understood{"Go": readByGo(t, m.Raw), "Python": byPython[i]} {
			if difference := l.want.differs(got); difference != "" {
				t.Errorf("%s reads %s in\n%s", parser, difference, m.Raw[:min(len(m.Raw), 4000)])
			}
		}
	}
}

// differs describes the first difference, or returns "". It ignores the headers
// that every mail gets by itself.
func (u understood) differs(got understood) string {
	for name, want := range u.Texts {
		if text, there := got.Texts[name]; text != want || !there {
			return fmt.Sprintf("%s as %q, want %q", name, text, want)
		}
	}
	for name, want := range u.Addresses {
		if !reflect.DeepEqual(got.Addresses[name], want) {
			return fmt.Sprintf("%s as %q, want %q", name, got.Addresses[name], want)
		}
	}
	for name := range got.Texts {
		switch name {
		case "Date", "Message-ID", "Message-Id", "MIME-Version", "Mime-Version", "Content-Type", "Content-Transfer-Encoding":
			continue
		}
		if _, text := u.Texts[name]; !text && u.Addresses[name] == nil {
			return "a header " + name
		}
	}
	if len(got.Parts) != len(u.Parts) {
		return fmt.Sprintf("%d parts, want %d", len(got.Parts), len(u.Parts))
	}
	for i, want := range u.Parts {
		if !reflect.DeepEqual(got.Parts[i], want) {
			return fmt.Sprintf("part %d as %s, want %s", i, got.Parts[i], want)
		}
	}
	return ""
}

// readByPython reads mails with python3, which scripts/needs installs.
func readByPython(t *testing.T, mails []catcher.Mail) []understood {
	t.Helper()
	var in bytes.Buffer
	for _, m := range mails {
		in.WriteString(base64.StdEncoding.EncodeToString(m.Raw) + "\n")
	}
	python := exec.CommandContext(t.Context(), "python3", "testdata/read_mails.py")
	python.Stdin, python.Stderr = &in, os.Stderr
	out, err := python.Output()
	if err != nil {
		t.Fatalf("python3: %v", err)
	}
	read := make([]understood, len(mails))
	lines := json.NewDecoder(bytes.NewReader(out))
	for i := range read {
		if err := lines.Decode(&read[i]); err != nil {
			t.Fatal(err)
		}
	}
	return read
}

func readByGo(t *testing.T, raw []byte) understood {
	t.Helper()
	m, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	got := understood{Texts: map[string]string{}, Addresses: map[string][]named{}}
	for name, values := range m.Header {
		if len(values) != 1 {
			t.Errorf("header %s occurs %d times", name, len(values))
		}
		if text, err := new(mime.WordDecoder).DecodeHeader(values[0]); err == nil {
			got.Texts[name] = text
		}
		if list, err := m.Header.AddressList(name); err == nil {
			for _, a := range list {
				got.Addresses[name] = append(got.Addresses[name], named{a.Name, a.Address})
			}
		}
	}
	got.readParts(t, m.Header.Get, m.Body)
	return got
}

func (u *understood) readParts(t *testing.T, header func(string) string, body io.Reader) {
	t.Helper()
	kind, parameters, err := mime.ParseMediaType(header("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(kind, "multipart/") {
		for parts := multipart.NewReader(body, parameters["boundary"]); ; {
			p, err := parts.NextRawPart()
			if err == io.EOF {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			u.readParts(t, p.Header.Get, p)
		}
	}
	if header("Content-Transfer-Encoding") == "base64" {
		body = base64.NewDecoder(base64.StdEncoding, body)
	} else {
		body = quotedprintable.NewReader(body)
	}
	p := readPart{Type: kind}
	if p.Content, err = io.ReadAll(body); err != nil {
		t.Fatal(err)
	}
	if d := header("Content-Disposition"); d != "" {
		disposition, parameters, err := mime.ParseMediaType(d)
		if err != nil {
			t.Fatal(err)
		}
		p.Attached, p.Filename = disposition == "attachment", parameters["filename"]
	}
	u.Parts = append(u.Parts, p)
}
