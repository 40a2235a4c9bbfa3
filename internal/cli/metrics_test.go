//go:build unix

package cli_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/redis/go-redis/v9"
	"gopkg.in/yaml.v3"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/devbroker"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/nats"
	"github.com/posthaste-mq/posthaste/postgres"
	posthasteredis "github.com/posthaste-mq/posthaste/redis"
)

var (
	metricsOn  = regexp.MustCompile(`metrics.*address"?[=:]"?(http://[^\s"]*/metrics)`)
	metricName = regexp.MustCompile(`\bposthaste_[a-z0-9_]+`)
	typed      = regexp.MustCompile(`(?m)^# TYPE (posthaste_\S+) (\S+)$`)
	helped     = regexp.MustCompile(`(?m)^# HELP (posthaste_\S+) .+$`)
)

// loggedBatch waits until a process has logged a batch, and returns the address of its metrics.
func loggedBatch(t *testing.T, p *process, line *regexp.Regexp) (metrics string) {
	t.Helper()
	eventually(t, "batches are logged", func() error {
		if !line.MatchString(p.said()) {
			return fmt.Errorf("said %s", p.said())
		}
		return nil
	})
	address := regexp.MustCompile(`address=(http://\S+/metrics)`).FindStringSubmatch(p.said())
	if address == nil {
		t.Fatal("no address of the metrics")
	}
	return address[1]
}

// scrape reads a page of metrics.
func scrape(url string) (string, error) {
	answer, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != 200 {
		err = fmt.Errorf("status %d", answer.StatusCode)
	}
	return string(page), err
}

// shown returns the metric names of a page, as queries use them.
func shown(page string) (names []string) {
	for _, m := range typed.FindAllStringSubmatch(page, -1) {
		names = append(names, m[1])
		if m[2] == "histogram" {
			names = append(names, m[1]+"_bucket", m[1]+"_sum", m[1]+"_count")
		}
	}
	return names
}

// used returns the metrics that a file names, without labels and links.
func used(t *testing.T, exprs []string) (names []string) {
	t.Helper()
	for _, e := range exprs {
		names = append(names, metricName.FindAllString(e, -1)...)
	}
	slices.Sort(names)
	if len(names) < 10 {
		t.Fatalf("only %d metrics are named", len(names))
	}
	return slices.Compact(names)
}

// exprsOf returns each "expr" and the query of each variable in the dashboard.
func exprsOf(v any) (found []string) {
	switch v := v.(type) {
	case []any:
		for _, each := range v {
			found = append(found, exprsOf(each)...)
		}
	case map[string]any:
		for key, each := range v {
			if text, ok := each.(string); ok && (key == "expr" || key == "query") {
				found = append(found, text)
			}
			found = append(found, exprsOf(each)...)
		}
	}
	return found
}

// Metrics have names, help and units by the conventions of Prometheus. The dashboard and the
// alert rules use existing metrics only, and all of them. Each rule has a runbook.
func TestTR2_MetricsBoardAndAlerts(t *testing.T) {
	t.Parallel()
	url := testpg.New(t)
	makeEmails(t, url)
	p := start(t, "", []string{"DATABASE_URL=" + url, "SMTP_URL=smtp://127.0.0.1:1?tls=none"}, "worker", "--queue", "emails", "--metrics-listen", "127.0.0.1:0")
	_, address := startServe(t, []string{"DATABASE_URL=" + url})
	eventually(t, "it is ready", answers("http://"+address+"/readyz", 200))
	if status, err := do("POST", "http://"+address+"/v1/emails", aMail, nil); status != 201 {
		t.Fatalf("the mail was answered by %d (%v)", status, err)
	}
	var page string
	eventually(t, "the worker shows the attempt that failed", func() (err error) {
		m := metricsOn.FindStringSubmatch(p.said())
		if m == nil {
			return fmt.Errorf("it said %q", p.said())
		}
		// Attempts are counted by kind every 15 s.
		if page, err = scrape(m[1]); err == nil && (!strings.Contains(page, `posthaste_handler_duration_seconds_count{outcome="retried",queue="emails",subscription="default"}`) ||
			!strings.Contains(page, `posthaste_attempt_wait_seconds_count{kind="",queue="emails",subscription="default"}`)) {
			err = fmt.Errorf("not yet")
		}
		return err
	})
	engine, err := postgres.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	relay := relayMetrics(t, "--database-url", url, engine)
	for _, each := range []string{page, relay} {
		problems, err := promlint.New(strings.NewReader(each)).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range problems {
			if strings.HasPrefix(problem.Metric, "posthaste_") {
				t.Errorf("%s: %s", problem.Metric, problem.Text)
			}
		}
	}
	page += relay // the metrics of brokers
	if a, b := len(typed.FindAllString(page, -1)), len(helped.FindAllString(page, -1)); a != b {
		t.Errorf("%d metrics, and %d have a help text", a, b)
	}
	served, err := scrape("http://" + address + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	names := append(shown(page), "posthaste_finding", "posthaste_queue_set_aside") // exported only with a finding, or a message that was set aside
	for _, name := range shown(served) {
		if !slices.Contains(names, name) {
			t.Errorf("serve shows %s, and a worker does not", name)
		}
	}
	// Counters start at zero; otherwise their first increase would be invisible.
	for _, line := range []string{`posthaste_possible_duplicates_total{queue="emails",subscription="default"} 0`, `posthaste_deliveries_settled_total{outcome="dead",queue="emails",subscription="default"} 0`,
		`posthaste_task_errors_total{task="settle"} 0`} {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("the page has no line %s", line)
		}
	}

	var board any
	readFile(t, "../../docs/production/monitoring/grafana.json", json.Unmarshal, &board)
	onBoard := used(t, exprsOf(board))
	var alerts struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations map[string]string
			}
		}
	}
	readFile(t, "../../docs/production/monitoring/alerts.yaml", yaml.Unmarshal, &alerts)
	runbooks, err := os.ReadFile("../../docs/production/runbooks.md")
	if err != nil {
		t.Fatal(err)
	}
	var exprs []string
	for _, rule := range alerts.Groups[0].Rules {
		exprs = append(exprs, rule.Expr)
		if !strings.Contains(string(runbooks), "\n### "+rule.Alert+"\n\n") || rule.Annotations["runbook"] != "docs/production/runbooks.md#"+strings.ToLower(rule.Alert) {
			t.Errorf("%s has no runbook in docs/production/runbooks.md, or does not name it", rule.Alert)
		}
	}
	for _, name := range append(onBoard, used(t, exprs)...) {
		if !slices.Contains(names, name) {
			t.Errorf("%s is named by the board or the alert rules, and /metrics does not show it", name)
		}
	}
	for _, m := range append(typed.FindAllStringSubmatch(page, -1), []string{"", "posthaste_finding"}) {
		if !slices.ContainsFunc(onBoard, func(n string) bool { return strings.TrimSuffix(n, "_bucket") == m[1] }) {
			t.Errorf("the board does not show %s", m[1])
		}
	}
	compareMetrics(t, page)
}

// On Redis and NATS, a worker, a relay and a source export the same metrics, except those of
// PostgreSQL: the ring and plans.
func TestTR2_MetricsOnRedis(t *testing.T) {
	t.Parallel()
	url := startRedis(t).URL()
	metricsOfStore(t, "--redis-url", url, storeOf(posthasteredis.Open(t.Context(), url))(t))
}

func TestTR2_MetricsOnNATS(t *testing.T) {
	t.Parallel()
	url := startNATS(t).URL()
	metricsOfStore(t, "--nats-url", url, storeOf(nats.Open(t.Context(), url))(t))
}

// metricsOfStore tests the metrics of a store without a ring, which the flag names.
func metricsOfStore(t *testing.T, storeFlag, store string, engine posthaste.Store) {
	t.Helper()
	env := []string{"POSTHASTE_" + strings.ToUpper(strings.ReplaceAll(storeFlag[2:], "-", "_")) + "=" + store, "SMTP_URL=smtp://127.0.0.1:1?tls=none"}
	p := start(t, "", env, "worker", "--queue", "emails", "--metrics-listen", "127.0.0.1:0")
	_, address := startServe(t, env[:1])
	eventually(t, "it is ready", answers("http://"+address+"/readyz", 200))
	eventually(t, "the mail is taken", func() error {
		_, err := do("POST", "http://"+address+"/v1/emails", aMail, nil)
		return err
	})
	var page string
	eventually(t, "the worker shows the attempt that failed", func() (err error) {
		m := metricsOn.FindStringSubmatch(p.said())
		if m == nil {
			return fmt.Errorf("it said %q", p.said())
		}
		if page, err = scrape(m[1]); err == nil && !strings.Contains(page, `posthaste_handler_duration_seconds_count{outcome="retried",queue="emails",subscription="default"}`) {
			err = fmt.Errorf("not yet")
		}
		return err
	})
	page += relayMetrics(t, storeFlag, store, engine)
	compareMetrics(t, page)
	for _, name := range shown(page) {
		if strings.HasPrefix(name, "posthaste_slots_") {
			t.Errorf("%s is shown where there is no ring", name)
		}
	}
	sent := "posthaste_queue_depth{queue=\"emails\",subscription=\"default\"} 1\n"
	if engine.Capabilities().Totals {
		sent = "posthaste_queue_sent_total{queue=\"emails\",subscription=\"default\"} 1\n"
	} else if strings.Contains(page, "posthaste_queue_sent_total") {
		t.Error("totals are shown that the store does not have")
	}
	for _, line := range []string{"posthaste_possible_duplicates_total{queue=\"emails\",subscription=\"default\"} 0\n", "posthaste_deliveries_settled_total{outcome=\"dead\",queue=\"emails\",subscription=\"default\"} 0\n",
		sent, "posthaste_store_up 1\n"} {
		if !strings.Contains(page, line) {
			t.Errorf("the page has no line %s", line)
		}
	}
}

// addDuplicateAndInvalid adds two entries to the stream "relayed": a duplicate of the first
// one, and a message that the queue rejects.
func addDuplicateAndInvalid(t *testing.T, client *redis.Client) {
	t.Helper()
	entries, err := client.XRange(t.Context(), "relayed", "-", "+").Result()
	if err != nil || len(entries) != 1 {
		t.Fatal(entries, err)
	}
	for _, values := range []map[string]any{entries[0].Values, {"message_id": "x", "content_type": "application/json", "payload": "{"}} {
		if err := client.XAdd(t.Context(), &redis.XAddArgs{Stream: "relayed", Values: values}).Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// relayMetrics returns the metrics of a process with a relay and a source on a Redis, after
// both have worked. It checks that counters start at zero, and that the metrics report a
// Redis that is unavailable.
func relayMetrics(t *testing.T, storeFlag, store string, engine posthaste.Store) (page string) {
	t.Helper()
	server, err := devbroker.StartRedis(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	client := redis.NewClient(&redis.Options{Addr: server.Address()})
	defer client.Close()
	if err := client.XGroupCreateMkStream(t.Context(), "relayed", "posthaste", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if err := cmp.Or(engine.CreateQueue(t.Context(), "out", posthaste.QueueOptions{}), engine.CreateQueue(t.Context(), "in", posthaste.QueueOptions{})); err != nil {
		t.Fatal(err)
	}
	dir := workDir(t)
	config := "broker: " + server.URL() + "\nrelays:\n  - {queue: out, stream: relayed}\nsources:\n  - {queue: in, stream: relayed}\n"
	if err := os.WriteFile(filepath.Join(dir, "both.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, dir, nil, "relay", storeFlag, store, "--config", "both.yaml", "--metrics-listen", "127.0.0.1:0")
	shows := func(lines ...string) func() error {
		return func() error {
			m := metricsOn.FindStringSubmatch(p.said())
			if m == nil {
				return fmt.Errorf("it said %q", p.said())
			}
			found, err := scrape(m[1])
			for _, line := range lines {
				if !strings.Contains(found, line+"\n") && err == nil {
					err = fmt.Errorf("the page has no line %s", line)
				}
			}
			if err == nil {
				page = found
			}
			return err
		}
	}
	taken := func(result string, n int) string {
		return fmt.Sprintf(`posthaste_source_messages_total{broker=%q,queue="in",result=%q} %d`, server.Address(), result, n)
	}
	up := func(queue string, up int) string {
		return fmt.Sprintf(`posthaste_broker_up{broker=%q,queue=%q} %d`, server.Address(), queue, up)
	}
	eventually(t, "it shows what may happen", shows(taken("sent", 0), taken("known", 0), taken("refused", 0), up("out", 1), up("in", 1)))
	if _, err := engine.Send(t.Context(), posthaste.Message{Queue: "out"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it counts the sent message", shows(taken("sent", 1), taken("known", 0)))
	addDuplicateAndInvalid(t, client)
	eventually(t, "it counts the duplicate and the rejected message", shows(taken("sent", 1), taken("known", 1), taken("refused", 1)))
	whole := page
	server.Kill()
	eventually(t, "it shows that the broker is away", shows(up("in", 0)))
	if code := p.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	return whole
}

func readFile(t *testing.T, name string, read func([]byte, any) error, into any) {
	t.Helper()
	content, err := os.ReadFile(name)
	if err == nil {
		err = read(content, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// The metrics name a subscription that keeps the ring full.
func TestSlowestSubscriptionIsShown(t *testing.T) {
	t.Parallel()
	url := testpg.New(t)
	engine, err := postgres.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	if err := engine.CreateQueue(t.Context(), "orders", posthaste.QueueOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := engine.Subscribe(posthaste.WithActor(t.Context(), "ada"), "orders", "slow", posthaste.SubscriptionOptions{}); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	// The ring advances as soon as its slot has messages, and all other slots should be free.
	if _, err := conn.Exec(t.Context(), `update posthaste.settings set slot_rows = 1, spare_slots = 15`); err != nil {
		t.Fatal(err)
	}
	_, address := startServe(t, []string{"DATABASE_URL=" + url})
	line := regexp.MustCompile(`(?m)^posthaste_finding\{check="ring",fault="(true|false)",queue="orders",subscription="slow"\} 1$`)
	eventually(t, "the subscription is shown", func() error {
		if _, err := engine.Send(t.Context(), posthaste.Message{Queue: "orders"}); err != nil {
			return err
		}
		reply, err := engine.Receive(t.Context(), posthaste.ReceiveRequest{QueueRef: posthaste.QueueRef{Queue: "orders"}, Max: 100, Lease: time.Minute})
		if err != nil {
			return err
		}
		for _, d := range reply.Deliveries {
			if _, err := engine.Settle(t.Context(), []posthaste.Settlement{{Delivery: d.ID, Outcome: posthaste.OutcomeDone}}); err != nil {
				return err
			}
		}
		if _, err := engine.Maintain(t.Context(), posthaste.UpkeepSpace); err != nil {
			return err
		}
		page, err := scrape("http://" + address + "/metrics")
		if err == nil && !line.MatchString(page) {
			err = fmt.Errorf("the page does not show it")
		}
		return err
	})
}
