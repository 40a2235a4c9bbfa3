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
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/dashboard"
	"github.com/posthaste-mq/posthaste/internal/cpumeter"
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

// Each page is there within 200 ms with 10 million messages, 1,000 queues and 100,000 dead
// letters, also for the first viewer. None reads a large table from its beginning, or is
// larger than a browser likes.
func TestDB3_PagesAreFast(t *testing.T) {
	var s *stage
	if onRedis(t) { // the disk need not keep up with so many messages
		s = stageOn(t, startRedis(t, "--appendfsync", "no").URL())
	} else {
		s = newStage(t)
	}
	w := s.fill(size(100, 1000), size(1_000_000, 10_000_000), size(10_000, 100_000))
	for _, found := range w.scans(w.visitAll) {
		t.Errorf("read from its beginning: %s", found)
	}
}

// visitAll visits all addresses, and one page of each kind to which they link.
func (w *warehouse) visitAll(engine posthaste.Store, used func() time.Duration) {
	w.Helper()
	visited, todo := map[string]bool{}, w.addresses()
	for _, address := range todo {
		visited[shape(address)] = true
	}
	for len(todo) > 0 {
		var body string
		testrun.Timed(w, pageTime, func() (fault string) {
			body, fault = w.visit(engine, used, todo[0])
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

// visit returns a page, and a fault if it took too long. On each change the server may take longer
// beside other tests, if it does not work longer.
func (w *warehouse) visit(engine posthaste.Store, used func() time.Duration, address string) (body, fault string) {
	w.Helper()
	var times, work []time.Duration
	for range size(3, 5) {
		// A new handler, which has read nothing yet.
		handler, err := dashboard.Handler(engine, dashboard.Config{Open: true, Timeout: patience})
		w.must(err)
		request := httptest.NewRequestWithContext(w.ctx, http.MethodGet, "http://127.0.0.1"+address, nil)
		request.Header.Set("Accept", "text/html")
		shown := httptest.NewRecorder()
		before, begun := used(), time.Now()
		handler.ServeHTTP(shown, request)
		times, work = append(times, time.Since(begun)), append(work, used()-before)
		if body = shown.Body.String(); shown.Code >= 400 {
			w.Fatalf("%s: status %d: %s", address, shown.Code, body)
		}
		if !full() && work[len(work)-1] <= boundOf(address) {
			break // further visits cannot make it a fault
		}
	}
	if len(body) > pageBytes {
		w.Errorf("%s has %d bytes, want at most %d", address, len(body), pageBytes)
	}
	slices.Sort(times)
	slices.Sort(work)
	took, worked := times[len(times)/2], work[0]
	w.Logf("%s: %s, CPU time %s, %d KiB", address, took.Round(time.Millisecond), worked.Round(time.Millisecond), len(body)>>10)
	if bound := boundOf(address); took > bound && (full() || worked > bound) {
		fault = fmt.Sprintf("%s took %s, of which %s CPU time; want at most %s", address, took, worked, bound)
	}
	return body, fault
}

// boundOf returns how long a page may take. The confirmation of an action on many dead letters
// states their exact number.
func boundOf(address string) time.Duration {
	if strings.HasPrefix(address, "/dead-letters/") {
		return countTime
	}
	return pageTime
}

// scans returns the large tables that were read from their beginning while an engine was used.
// used returns the CPU time that this process and the sessions of the engine have used so far.
func (w *warehouse) scans(use func(engine posthaste.Store, used func() time.Duration)) (found []string) {
	w.Helper()
	if w.redis() {
		use(w.engine, func() time.Duration { return ownTime() + w.redisTime() })
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
	use(engine, func() time.Duration {
		total := ownTime()
		for _, pid := range one[[]int32](w.stage, conn, "select coalesce(array_agg(pid), '{}') from pg_stat_activity where application_name like $1 || '%'", application) {
			total += cpumeter.Of(uint32(pid))
		}
		return total
	})
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

// redisTime returns the CPU time of the stage's Redis.
func (s *stage) redisTime() (total time.Duration) {
	s.Helper()
	about, err := s.keys().Info(s.ctx, "cpu").Result()
	s.must(err)
	for line := range strings.Lines(about) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), ":"); name == "used_cpu_user" || name == "used_cpu_sys" {
			seconds, err := strconv.ParseFloat(value, 64)
			s.must(err)
			total += time.Duration(seconds * float64(time.Second))
		}
	}
	return total
}

// ownTime returns the CPU time of this process.
func ownTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // always succeeds
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
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
