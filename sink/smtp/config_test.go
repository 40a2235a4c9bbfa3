package smtp

import (
	"strings"
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		url, address, user, password string
		security                     security
	}{
		{"smtp://mail.example.com", "mail.example.com:587", "", "", startTLS},
		{"smtp://mail.example.com/", "mail.example.com:587", "", "", startTLS},
		{"smtp://mail.example.com:25?tls=required", "mail.example.com:25", "", "", startTLS},
		{"smtp+starttls://mail.example.com", "mail.example.com:587", "", "", startTLS},
		{"smtps://ada:s%40cret@mail.example.com", "mail.example.com:465", "ada", "s@cret", implicitTLS},
		{"smtp://ada%40example.com:p@[2001:db8::1]:26?tls=opportunistic", "[2001:db8::1]:26", "ada@example.com", "p", opportunistic},
		{"smtp://ada:p@127.0.0.1:1025?tls=none", "127.0.0.1:1025", "ada", "p", unencrypted},
		{"smtp://ada:p@localhost?tls=none", "localhost:587", "ada", "p", unencrypted},
		{"smtp://mail.example.com?tls=none", "mail.example.com:587", "", "", unencrypted},
	} {
		got, err := parse(Config{URL: c.url})
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		if got.address != c.address || got.user != c.user || got.password != c.password || got.security != c.security {
			t.Errorf("%s is parsed as %+v", c.url, got)
		}
	}
	got, err := parse(Config{URL: "smtp://h?connections=3&idle_timeout=1s&dial_timeout=2s&command_timeout=3s&data_timeout=4s&hello=me.example", Connections: 9})
	if err != nil {
		t.Fatal(err)
	}
	if got.Connections != 3 || got.IdleTimeout != time.Second || got.DialTimeout != 2*time.Second ||
		got.CommandTimeout != 3*time.Second || got.DataTimeout != 4*time.Second || got.Hello != "me.example" || got.TLS.ServerName != "h" {
		t.Errorf("parsed as %+v", got)
	}
}

func TestConfigRefuses(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "mail.example.com", "mail.example.com:25", "http://mail.example.com", "smtp://", "smtp://:25", "smtp:mail",
		"smtp://h:0", "smtp://h:99999", "smtp://h:x", "smtp://h/path", "smtp://h#f",
		"smtp://s3cret@h", "smtp://:s3cret@h", "smtp://ada:@h", "smtp://ada:s3cret%@h", "smtp://ada:s3cret\x7f@h", "smtp://ada:s3cret@h:x",
		"smtp://ada:s3/cret@h", "smtp://ada:31415/s3cret@h", "smtp://ada:31415?s3cret@h", "smtp://ada:31415#s3cret@h",
		"smtp://h?tls=maybe", "smtps://h?tls=none", "smtp+starttls://h?tls=opportunistic", "smtp://h?tsl=none", "smtp://h?a=%zz",
		"smtp://h?connections=0", "smtp://h?dial_timeout=5", "smtp://h?data_timeout=-1s",
		"smtp://ada:s3cret@mail.example.com?tls=none",
	} {
		_, err := New(Config{URL: url})
		if code := posthaste.CodeOf(err); code != posthaste.CodeInvalid && code != posthaste.CodeRefused {
			t.Errorf("%q: %v", url, err)
			continue
		}
		if !strings.Contains(err.Error(), "smtp_url") || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "31415") {
			t.Errorf("%q: text %q", url, err)
		}
	}
}
