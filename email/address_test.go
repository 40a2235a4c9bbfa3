package email

import (
	"net/mail"
	"strings"
	"testing"
)

func TestParseAddress(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", MaxLocalBytes)
	for _, c := range []struct{ in, name, envelope string }{
		{"ada@example.com", "", "ada@example.com"},
		{" ada@example.com ", "", "ada@example.com"},
		{"<ada@example.com>", "", "ada@example.com"},
		{"Ada <ada@example.com>", "Ada", "ada@example.com"},
		{"Ada  von   L <ada@example.com>", "Ada von L", "ada@example.com"},
		{`"Lovelace, Ada" <Ada@Example.com>`, "Lovelace, Ada", "Ada@Example.com"},
		{"Zoë 🚀 <zoe@example.com>", "Zoë 🚀", "zoe@example.com"},
		{"=?utf-8?q?Zo=C3=AB?= <zoe@example.com>", "Zoë", "zoe@example.com"},
		{`"=?utf-8?q?J=C3=BCrgen?=" <j@example.com>`, "Jürgen", "j@example.com"},
		{`"Dr. =?UTF-8?B?SsO8?= =?utf-8?q?rgen?= Meier" <j@example.com>`, "Dr. Jürgen Meier", "j@example.com"},
		{"=?utf-8?q?J=C3=BCrgen Meier?= <j@example.com>", "Jürgen Meier", "j@example.com"},
		{"=?utf-8?q?J=C3?= =?utf-8?q?=BCrgen?= <j@example.com>", "Jürgen", "j@example.com"},
		{"=?windows-1252*de?Q?J=FCrgen?= <j@example.com>", "Jürgen", "j@example.com"},
		{"=?ISO-2022-JP?B?GyRCRnxLXBsoQg==?= <j@example.com>", "日本", "j@example.com"},
		{"=?utf-8?q?a=3D=3Futf-8=3Fq=3Fb=3F=3D?= <once@example.com>", "a=?utf-8?q?b?=", "once@example.com"},
		{`"=? a=?b =?utf-8?q?J=C3=BCrgen?=" <j@example.com>`, "=? a=?b Jürgen", "j@example.com"},
		{"a=?b <a@example.com>", "a=?b", "a@example.com"},
		{"My Shop (EU) <shop@example.com>", "My Shop (EU)", "shop@example.com"},
		{"Shop(EU)  (a  b) <shop@example.com>", "Shop(EU) (a b)", "shop@example.com"},
		{"=?utf-8?q?Zo=C3=AB?= (EU) <zoe@example.com>", "Zoë (EU)", "zoe@example.com"},
		{`"Quoted (EU)" (x) <q@example.com>`, "Quoted (EU) (x)", "q@example.com"},
		{"Sad :( <sad@example.com>", "Sad :(", "sad@example.com"},
		{"a+b/c=d!#$%&'*-?^_`{|}~@example.com", "", "a+b/c=d!#$%&'*-?^_`{|}~@example.com"},
		{`"ada lovelace"@example.com`, "", `"ada lovelace"@example.com`},
		{`"plain"@example.com`, "", `plain@example.com`},
		{`"a\"\\b@c"@example.com`, "", `"a\"\\b@c"@example.com`},
		{"ada@münchen.de", "", "ada@xn--mnchen-3ya.de"},
		{"用户@例え.jp", "", "用户@例え.jp"},
		{"ada@localhost", "", "ada@localhost"},
		{"ada@[192.0.2.1]", "", "ada@[192.0.2.1]"},
		{"ada@[IPv6:2001:db8::1]", "", "ada@[IPv6:2001:db8::1]"},
		{long + "@example.com", "", long + "@example.com"},
	} {
		a, err := ParseAddress(c.in)
		if err != nil {
			t.Errorf("%q: %v", c.in, err)
			continue
		}
		if a.Name != c.name || a.Envelope() != c.envelope {
			t.Errorf("%q: name %q envelope %q, want %q and %q", c.in, a.Name, a.Envelope(), c.name, c.envelope)
		}
	}
}

// badAddresses is shared with the test of Validate.
var badAddresses = []string{
	"", " ", "ada", "@example.com", "ada@", "ada@@example.com", "a b@example.com",
	".ada@example.com", "ada.@example.com", "a..da@example.com", "ada@example..com",
	"ada@-example.com", "ada@exa_mple.com", "ada@.com", "ada@example.com.",
	"ada@exam ple.com", "ada@example.com>", "<ada@example.com", "Ada ada@example.com",
	"Lovelace, Ada <ada@example.com>, x <b@example.com>", "a@b.com, c@d.com", "a@b.com c@d.com",
	"<@relay.example:ada@example.com>", "Group: a@b.com;",
	"ada@example.com\r\nBcc: eve@example.com", "ada\n@example.com", "ada@example.com\x00",
	"Ada\r\n <ada@example.com>", "=?utf-8?q?a=0D=0ABcc:_eve=40example.com?= <ada@example.com>",
	"\"a\tb\"@example.com", `""@example.com`, `"ada@example.com`, `"a"b@example.com`, "ada\u0085@example.com",
	"ada@[192.0.2.256]", "ada@[2001:db8::1]", "ada@[IPv6:192.0.2.1]", "ada@[]", "ada@[192.0.2.1",
	"ada@xn--\u00e4.com", "ada@\u202e.com", "ada\u00a0b@example.com", "a\xff@example.com",
	strings.Repeat("a", MaxLocalBytes+1) + "@example.com",
	"ada@" + strings.Repeat("a", 64) + ".com",
	"ada@" + strings.Repeat("a23456789.", 25) + "com",
	strings.Repeat("n", MaxNameBytes+1) + " <ada@example.com>",
	"=?x-none?q?a?= <ada@example.com>", "=?utf-8?q?J=FCrgen?= <ada@example.com>", `"=?utf-8?q?a=0Ab?=" <ada@example.com>`,
	`"Shop"(EU) <ada@example.com>`, "ada@example.com (Ada)", "(Ada) ada@example.com",
}

func TestParseAddressRefuses(t *testing.T) {
	t.Parallel()
	for _, in := range badAddresses {
		if a, err := ParseAddress(in); err == nil {
			t.Errorf("%q was taken as %+v", in, a)
		} else if strings.ContainsAny(err.Error(), "\r\n\x00") || err.Error() == "" {
			t.Errorf("%q: error text %q", in, err)
		}
	}
}

func FuzzParseAddress(f *testing.F) {
	for _, s := range badAddresses {
		f.Add(s)
	}
	for _, s := range []string{"ada@example.com", `"A, B" <"a b"@[192.0.2.1]>`, "用户@例え.jp", "é <a@münchen.de>", `"<"@a`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAddress(s)
		if err != nil {
			return
		}
		envelope := a.Envelope()
		if hasControl(envelope) || hasControl(a.Name) || len(envelope) > MaxAddressBytes {
			t.Fatalf("%q gives envelope %q, name %q", s, envelope, a.Name)
		}
		again, err := ParseAddress(envelope)
		if err != nil || again.Envelope() != envelope || again.Local != a.Local {
			t.Fatalf("%q: envelope %q is read as %+v (%v)", s, envelope, again, err)
		}
		// A different parser reads the written header back. It does not know SMTP's address
		// literals.
		if strings.HasPrefix(a.Domain, "[") {
			return
		}
		header := writeAddresses("To", []Address{a})
		read, err := mail.ParseAddress(header)
		if err != nil {
			t.Fatalf("%q: header %q: %v", s, header, err)
		}
		if read.Name != a.Name || read.Address != a.Local+"@"+a.wireDomain() {
			t.Fatalf("%q: header %q is read as %+v, want %+v", s, header, read, a)
		}
	})
}
