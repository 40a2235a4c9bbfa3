package nats

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	handlers "github.com/posthaste-mq/posthaste/worker"
)

// secret is the password in the tests of errors and logs.
const secret = "hunter2"

// startSecured starts a server whose user "app" has the rights to publish and to subscribe, and
// returns its address.
func startSecured(t *testing.T, publish, subscribe []string) string {
	t.Helper()
	user := &server.User{Username: "app", Password: secret, Permissions: &server.Permissions{
		Publish: &server.SubjectPermission{Allow: publish}, Subscribe: &server.SubjectPermission{Allow: subscribe}}}
	s := startServerWith(t, &server.Options{Users: []*server.User{user}})
	return s.Addr().String()
}

// rights returns the subjects of a line of the table of permissions in the documentation.
func rights(t *testing.T, of string) (subjects []string) {
	t.Helper()
	text, err := os.ReadFile("../docs/production/nats-engine.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "| "+of+" | `") {
			for _, found := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(line, -1) {
				subjects = append(subjects, found[1])
			}
		}
	}
	if len(subjects) == 0 {
		t.Fatalf("the documentation has no permission to %s", of)
	}
	return subjects
}

// goesThrough uses the store in each way that needs another right, and returns the first error.
func goesThrough(ctx context.Context, url string) error {
	e, err := Open(ctx, url, WithAckWait(leastAckWait))
	if err != nil {
		return err
	}
	defer e.Close()
	if err := e.CreateQueue(ctx, "jobs", posthaste.QueueOptions{}); err != nil {
		return err
	}
	if _, err := e.Send(ctx, posthaste.Message{Queue: "jobs", Payload: 1}, posthaste.Message{Queue: "jobs", Payload: 2, DedupeKey: "k"}); err != nil {
		return err
	}
	reply, err := e.Receive(ctx, posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "jobs"}, Max: 2, Lease: time.Minute})
	if err != nil {
		return err
	}
	var settlements []posthaste.Settlement
	for i, d := range reply.Deliveries {
		settlements = append(settlements, posthaste.Settlement{Delivery: d.ID, Outcome: []posthaste.Outcome{posthaste.OutcomeDone, posthaste.OutcomeRetried}[i%2], Error: "again"})
	}
	if _, err = e.Settle(ctx, settlements[:1]); err != nil {
		return err
	}
	other, err := Open(ctx, url, WithAckWait(leastAckWait))
	if err != nil {
		return err
	}
	defer other.Close()
	if _, err := other.Settle(ctx, settlements[1:]); err != nil { // by the process that holds the delivery
		return err
	}
	return e.denials.recent() // of a subscription, for which nothing waits yet
}

// The rights that the documentation lists are enough. If one is missing, an error names it, and no
// error has the password.
func TestNJ9_Permissions(t *testing.T) {
	t.Parallel()
	publish, subscribe := rights(t, "publish"), rights(t, "subscribe")
	if err := goesThrough(t.Context(), "nats://app:"+secret+"@"+startSecured(t, publish, subscribe)); err != nil {
		t.Errorf("with all rights of the documentation: %v", err)
	}
	without := func(all []string, one string) []string {
		// None at all would be every right.
		return append(slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == one }), "nothing")
	}
	for _, right := range slices.Concat(publish, subscribe) {
		if right == "$JS.FC.>" {
			continue // it is used under load only
		}
		t.Run(right, func(t *testing.T) {
			t.Parallel()
			err := goesThrough(t.Context(), "nats://app:"+secret+"@"+startSecured(t, without(publish, right), without(subscribe, right)))
			if posthaste.CodeOf(err) != posthaste.CodeDenied || !strings.Contains(err.Error(), strings.TrimSuffix(right, ">")) || strings.Contains(err.Error(), secret) {
				t.Errorf("without %s: %v", right, err)
			}
		})
	}
}

// A worker that lacks rights, or whose password is wrong, tells why, and no log has the password.
func TestNJ9_SecretsAreNotLogged(t *testing.T) {
	t.Parallel()
	all, subscribe := rights(t, "publish"), rights(t, "subscribe")
	few := slices.DeleteFunc(slices.Clone(all), func(s string) bool { return s == "$JS.ACK.>" })
	for name, c := range map[string]struct{ url, want string }{
		"rights":   {"nats://app:" + secret + "@" + startSecured(t, few, subscribe), "$JS.ACK."},
		"password": {"nats://app:" + secret + "wrong@" + startSecured(t, all, subscribe), "user and password"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := openEngine(t, c.url, WithLazyConnect(), WithAckWait(leastAckWait))
			var said testrun.Log
			log := slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelDebug}))
			w := handlers.New(e, handlers.Config{Logger: log, Lease: 2 * time.Second})
			handlers.HandleRaw(w, "jobs", func(context.Context, posthaste.RawDelivery) error { return nil })
			if name == "rights" {
				testrun.Until(t, time.Minute, "the queue is made", func() bool { return e.CreateQueue(t.Context(), "jobs", posthaste.QueueOptions{}) == nil })
				if _, err := e.Send(t.Context(), posthaste.Message{Queue: "jobs", Payload: 1}); err != nil {
					t.Fatal(err)
				}
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- w.Run(ctx) }()
			testrun.Until(t, time.Minute, "the log names "+c.want, func() bool {
				if name == "password" { // a worker waits for its store
					err := e.Ready(t.Context())
					return err != nil && strings.Contains(err.Error(), c.want) && !strings.Contains(err.Error(), secret)
				}
				return said.Has(c.want)
			})
			stop()
			if err := <-ended; err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("the worker ended with %v", err)
			}
			if said.Has(secret) {
				t.Errorf("the log has the password:\n%s", said.String())
			}
		})
	}
}

// What the doctor may not ask explains no call of others, and earlier denials still count.
func TestDenialOfTheDoctor(t *testing.T) {
	t.Parallel()
	var d denials
	d.handleError(nil, nil, fmt.Errorf("%w: the doctor", natsgo.ErrPermissionViolation))
	d.forgetSince(d.at)
	if err := d.recent(); err != nil {
		t.Error(err)
	}
	d.handleError(nil, nil, fmt.Errorf("%w: another", natsgo.ErrPermissionViolation))
	d.forgetSince(d.at + 1)
	wantCode(t, "another", d.recent(), posthaste.CodeDenied)
}
