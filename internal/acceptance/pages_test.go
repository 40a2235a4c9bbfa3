//go:build unix

package acceptance

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/dashboard"
	"github.com/posthaste-mq/posthaste/internal/testrun"
	"github.com/posthaste-mq/posthaste/postgres"
)

const (
	// pageTime is how long the server may take for a page.
	pageTime = 200 * time.Millisecond
	// countTime is how long it may take to count the dead letters that an action will change.
	countTime = 5 * time.Second
	// pageBytes is how large a page may be for a browser that morphs it every two seconds.
	pageBytes = 512 << 10
)

// addresses are typical addresses of pages. Pages that they link to are visited, too, so that
// this list needs only those that no page links to with these parameters.
func (w *warehouse) addresses() []string {
	shop, last := w.queues[3], w.queues[len(w.queues)-1]
	of := func(path string, params ...string) string {
		query := url.Values{}
		for i := 0; i < len(params); i += 2 {
			query.Set(params[i], params[i+1])
		}
		return path + "?" + query.Encode()
	}
	since := time.Now().UTC().Add(-time.Minute).Format(time.RFC3339)
	all := []string{"/", "/queues", "/queues?sort=-dead", "/queues/" + busyQueue, "/queues/" + doneQueue, "/queues/" + shop, "/queues/" + last,
		"/messages", "/failing", "/bulk", "/dead-letters", "/schedules", "/workers", "/audit", of("/audit", "queue", shop), of("/audit", "message", w.named.String()), "/tokens",
		"/messages/" + w.named.String(), "/messages/" + w.story.String(), "/messages/" + w.dead[0].String(), "/messages/" + w.dead[0].String() + "/payload",
		of("/messages/cancel", "reference", busyQueue+"-400")}
	for _, q := range []string{w.named.String(), w.story.String(), busyQueue + "-400", shop + "-0", "mail-400@example.com", "customer-400", "nothing-has-this", "9000000000000000000"} {
		all = append(all, of("/search", "q", q))
	}
	for _, queue := range []string{"", busyQueue, shop, last} {
		messages := func(params ...string) { all = append(all, of("/messages", append(params, "queue", queue)...)) }
		messages()
		for _, state := range posthaste.States() {
			messages("state", string(state))
		}
		messages("kind", "kind-7")
		messages("kind", "no-such-kind")
		messages("key", "customer-400")
		messages("key", "no-such-key")
		messages("reference", busyQueue+"-400")
		messages("reference", "no-such-reference")
		messages("term", "mail-400@example.com")
		messages("term", "no-such-term")
		messages("from", since)
		messages("before", w.named.String())
	}
	for _, queue := range []string{"", busyQueue, shop} {
		letters := func(params ...string) { all = append(all, of("/dead-letters", append(params, "queue", queue)...)) }
		letters()
		letters("kind", "kind-0")
		letters("kind", "no-such-kind")
		letters("key", "customer-400")
		letters("reference", shop+"-0")
		letters("term", "mail-400@example.com")
		letters("error", "declined by bank C")
		letters("error", "no such error")
		letters("died_from", since)
		letters("died_before", since)
		letters("before", w.dead[50].String())
	}
	return all
}

// With 10 million messages, 1,000 queues and 100,000 dead letters each page is there within
// 200 ms, also for the first viewer. None reads a large table from its beginning, or is larger
// than a browser likes. On each change only the latter two are tested, because beside other
// tests a page may take long.
func TestDB3_PagesAreFast(t *testing.T) {
	var s *stage
	if onRedis(t) { // the disk need not keep up with so many messages
		s = stageOn(t, startRedis(t, "--appendfsync", "no").URL())
	} else {
		s = newStage(t)
	}
	w := s.fill(size(100, 1000), size(200_000, 10_000_000), size(10_000, 100_000))
	for _, found := range w.scans(w.visitAll) {
		t.Errorf("read from its beginning: %s", found)
	}
}

// visitAll visits all addresses, and one page of each kind to which they link.
func (w *warehouse) visitAll(engine posthaste.Store) {
	w.Helper()
	visited, todo := map[string]bool{}, w.addresses()
	for _, address := range todo {
		visited[shape(address)] = true
	}
	for len(todo) > 0 {
		var body string
		testrun.Timed(w, pageTime, func() (fault string) {
			body, fault = w.visit(engine, todo[0])
			return fault
		})
		todo = todo[1:]
		for _, link := range links(body) {
			if is := shape(link); !visited[is] && !counts.MatchString(link) {
				visited[is] = true
				todo = append(todo, link)
			}
		}
	}
}

// visit returns a page and, at full size, a fault if it took too long.
func (w *warehouse) visit(engine posthaste.Store, address string) (body, fault string) {
	w.Helper()
	var times []time.Duration
	for range size(1, 5) {
		// A new handler, which has read nothing yet.
		handler, err := dashboard.Handler(engine, dashboard.Config{Open: true, Timeout: patience})
		w.must(err)
		request := httptest.NewRequestWithContext(w.ctx, http.MethodGet, "http://127.0.0.1"+address, nil)
		request.Header.Set("Accept", "text/html")
		shown := httptest.NewRecorder()
		begun := time.Now()
		handler.ServeHTTP(shown, request)
		times = append(times, time.Since(begun))
		if body = shown.Body.String(); shown.Code >= 400 {
			w.Fatalf("%s: status %d: %s", address, shown.Code, body)
		}
	}
	if len(body) > pageBytes {
		w.Errorf("%s has %d bytes, want at most %d", address, len(body), pageBytes)
	}
	slices.Sort(times)
	took, bound := times[len(times)/2], pageTime
	if strings.HasPrefix(address, "/dead-letters/") { // the confirmation of an action on many
		bound = countTime
	}
	w.Logf("%s: %s, %d KiB", address, took.Round(time.Millisecond), len(body)>>10)
	if full() && took > bound {
		fault = fmt.Sprintf("%s took %s, want at most %s", address, took, bound)
	}
	return body, fault
}

// scans returns the large tables that were read from their beginning while an engine was used.
func (w *warehouse) scans(use func(engine posthaste.Store)) (found []string) {
	w.Helper()
	if w.redis() {
		use(w.engine)
		return nil
	}
	conn := w.conn()
	before := w.scanned(conn)
	application := w.name("pages")
	u, err := url.Parse(w.url)
	w.must(err)
	query := u.Query()
	query.Set("application_name", application)
	u.RawQuery = query.Encode()
	engine, err := postgres.Open(w.ctx, u.String(), postgres.WithLogger(w.log))
	w.must(err)
	use(engine)
	engine.Close()
	// A session reports its reads at the latest when it ends.
	w.until("the sessions end", func() bool {
		return one[bool](w.stage, conn, "select not exists (select from pg_stat_activity where application_name like $1 || '%')", application)
	})
	for table, rows := range w.scanned(conn) {
		if rows > before[table] {
			found = append(found, fmt.Sprintf("%s (%d rows)", table, rows-before[table]))
		}
	}
	slices.Sort(found)
	return found
}

// scanned returns how many rows of each large table were read by sequential scans so far.
func (w *warehouse) scanned(conn *pgx.Conn) map[string]int64 {
	w.Helper()
	rows, err := conn.Query(w.ctx, "select relname, seq_tup_read from pg_stat_user_tables where n_live_tup > 5000")
	w.must(err)
	tables := map[string]int64{}
	var name string
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&name, &n}, func() error { tables[name] = n; return nil })
	w.must(err)
	return tables
}

var (
	hrefs = regexp.MustCompile(`href="(/[^"#]*)"`)
	// counts matches the confirmations of actions on all messages that match a filter. They state
	// the exact number, and list all of the messages to count them. Of the links to them none is
	// followed, because they take as long as there are messages.
	counts   = regexp.MustCompile(`^/messages/[a-z]+(\?|$)`)
	numbers  = regexp.MustCompile(`^[0-9]+$`)
	ofQueues = regexp.MustCompile(`^/queues/[^/]+`)
)

// links returns the pages that a page links to.
func links(body string) (all []string) {
	for _, m := range hrefs.FindAllStringSubmatch(body, -1) {
		if link := html.UnescapeString(m[1]); !strings.HasPrefix(link, "/assets/") {
			all = append(all, link)
		}
	}
	return all
}

// shape returns an address without what differs between pages of the same kind.
func shape(address string) string {
	path, query, _ := strings.Cut(address, "?")
	path = ofQueues.ReplaceAllString(path, "/queues/QUEUE")
	parts := strings.Split(path, "/")
	for i, part := range parts {
		if numbers.MatchString(part) {
			parts[i] = "ID"
		}
	}
	values, _ := url.ParseQuery(query)
	var names []string
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(parts, "/") + "?" + strings.Join(names, "&")
}
