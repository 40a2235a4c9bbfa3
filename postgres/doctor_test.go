package postgres_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthaste-mq/posthaste"
	"github.com/posthaste-mq/posthaste/internal/testpg"
	"github.com/posthaste-mq/posthaste/postgres"
)

// finds returns the doctor's findings of one check, with an engine on url.
func finds(t *testing.T, url, check string) (found []posthaste.Finding) {
	t.Helper()
	e := openAt(t, url, postgres.WithPollingOnly())
	all, err := e.Doctor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.Check == check {
			found = append(found, f)
		}
	}
	return found
}

func TestDoctorSeesAPooler(t *testing.T) {
	t.Parallel()
	url := testpg.New(t)
	if found := finds(t, url, "pooler"); len(found) > 0 {
		t.Errorf("without a pooler: %+v", found)
	}
	if found := finds(t, testpg.Bouncer(t, url), "pooler"); len(found) != 1 || found[0].Fault || !strings.Contains(found[0].Hint, "--polling-only") {
		t.Errorf("behind a pooler: %+v", found)
	}
}

func TestDoctorSeesANewerSchema(t *testing.T) {
	t.Parallel()
	url := testpg.New(t)
	if found := finds(t, url, "version"); len(found) > 0 {
		t.Errorf("of the same version: %+v", found)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `insert into posthaste.migrations (version, name, breaking) values (9000, 'future', false)`); err != nil {
		t.Fatal(err)
	}
	if found := finds(t, url, "version"); len(found) != 1 || !strings.Contains(found[0].Message, "9000_future") {
		t.Errorf("on a newer schema: %+v", found)
	}
}

func TestDoctorComparesClocks(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		took, off time.Duration
		finds     bool
	}{{time.Millisecond, 0, false}, {time.Minute, 30 * time.Second, false}, {time.Millisecond, time.Minute, true}, {time.Millisecond, -time.Minute, true}, {time.Millisecond, time.Second, false}} {
		if found := postgres.ClockFinding(now, now.Add(c.took), now.Add(c.off)); (len(found) > 0) != c.finds {
			t.Errorf("asked for %s, %s off: %+v", c.took, c.off, found)
		}
	}
}
