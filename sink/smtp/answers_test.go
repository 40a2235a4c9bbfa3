package smtp

import (
	"testing"
	"time"

	"github.com/posthaste-mq/posthaste/email"
)

// The receipt keeps the server's replies to the steps before RCPT for each recipient, with
// their codes.
func TestAnswersBeforeRecipients(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		parameters string
		lines      []string
		want       email.Answer
	}{
		"greeting": {"tls=none", []string{"421 4.3.2 busy\r\n"}, email.Answer{Code: 421, Enhanced: "4.3.2", Text: "greeting: busy"}},
		"no text":  {"tls=none", []string{"554 \r\n"}, email.Answer{Code: 554, Text: "greeting: (the server gave no reason)"}},
		"EHLO":     {"tls=none", []string{"220 hi\r\n", "550 5.7.1 who?\r\n", "550 5.7.1 who?\r\n"}, email.Answer{Code: 550, Enhanced: "5.7.1", Text: "EHLO: who?"}},
		"STARTTLS": {"tls=opportunistic", []string{"220 hi\r\n", "250-hi\r\n250 STARTTLS\r\n", "454 4.7.0 not now\r\n"}, email.Answer{Code: 454, Enhanced: "4.7.0", Text: "STARTTLS: not now"}},
		"AUTH":     {"tls=none", []string{"220 hi\r\n", "250-hi\r\n250 AUTH PLAIN\r\n", "535 5.7.8 wrong\r\n", "250 ok\r\n"}, email.Answer{Code: 535, Enhanced: "5.7.8", Text: "AUTH PLAIN: wrong"}},
		"MAIL":     {"tls=none", []string{"220 hi\r\n", "250 hi\r\n", "421 4.3.2 later\r\n"}, email.Answer{Code: 421, Enhanced: "4.3.2", Text: "MAIL: later"}},
		"MAIL 450": {"tls=none", []string{"220 hi\r\n", "250 hi\r\n", "450 4.2.0 later\r\n", "250 ok\r\n"}, email.Answer{Code: 450, Enhanced: "4.2.0", Text: "later"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			user := ""
			if name == "AUTH" {
				user = "ada:secret@"
			}
			s := newSinkOf(t, Config{URL: "smtp://" + user + scripted(t, c.lines...) + "?hello=test.example&" + c.parameters})
			r, receipt := attemptOnce(t, s, delivery(t, simple("bob@example.com", "carl@example.com")))
			said := answerText(c.want.Code, c.want.Enhanced, c.want.Text)
			wantRetry(t, r, "bob@example.com, carl@example.com: "+said)
			c.want.Status, c.want.Attempt = email.Deferred, 1
			for _, who := range []string{"bob@example.com", "carl@example.com"} {
				got := receipt.Recipients[who]
				got.At = time.Time{}
				if got != c.want {
					t.Errorf("%s has the answer %+v, want %+v", who, got, c.want)
				}
			}
		})
	}
}
