package ledger_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/posthaste-mq/posthaste/internal/testpg"
)

// The doctor finds nothing in a healthy database, and each fault by name.
func TestDoctor(t *testing.T) {
	t.Parallel()
	s := begin(t, testpg.New(t))
	found := func() []string {
		t.Helper()
		return list[string](s, `select d."check" || ' ' || d.level || coalesce(' ' || d.queue || '/' || d.subscription, '') from posthaste.doctor() d where d."check" <> 'settings' order by 1`) // tests run without fsync
	}
	expect := func(what string, want ...string) {
		t.Helper()
		if got := found(); !slices.Equal(got, want) {
			t.Errorf("%s: found %q, want %q", what, got, want)
		}
	}
	s.send(`{}`)
	s.exec(`select from posthaste.count_up()`) // the database may be older than a minute
	expect("in good health")

	// A worker is gone, and its messages were not redelivered.
	worker := s.register()
	s.claim(worker, 1, 1, false)
	s.exec(`update posthaste.registrations set lease = '1 microsecond'`)
	expect("a worker is gone", "workers warning")
	until(t, "it is rescued", func() bool { return get[int](s, `select posthaste.rescue()`) == 0 })
	expect("it is rescued")

	// Messages flow, and the ledger is not maintained.
	s.exec(`select from posthaste.count_up()`)
	s.exec(`update posthaste.counted set at = at - interval '2 minutes'`)
	s.send(`{}`)
	expect("no maintenance", "workers warning")

	// The clock was set back since the last round.
	s.exec(`update posthaste.counted set at = clock_timestamp() + interval '1 hour'`)
	expect("the clock was set back", "clock warning")
	s.exec(`select from posthaste.count_up()`)

	// A slow subscription fills the ring.
	s.exec(`select posthaste.subscribe('q', 'slow')`)
	for range 3 {
		s.receive()
	}
	s.exec(`select from posthaste.ack(array(select c.id * 4096 + g from posthaste.claims c cross join lateral generate_series(0, c.places - 1) g where c.single))`)
	s.send(`{}`)
	s.receive()
	s.exec(`select from posthaste.ack(array(select c.id * 4096 + g from posthaste.claims c cross join lateral generate_series(0, c.places - 1) g where c.single))`)
	s.exec(`update posthaste.settings set slot_rows = 1`)
	turn(t, s)
	s.exec(`update posthaste.settings set slot_rows = 1000000, spare_slots = 15`)
	s.send(`{}`)
	s.receive()
	s.exec(`select from posthaste.ack(array(select c.id * 4096 + g from posthaste.claims c cross join lateral generate_series(0, c.places - 1) g where c.single))`)
	until(t, "the slow one is named", func() bool {
		s.exec(`select posthaste.carry_slot(0)`) // as maintenance does
		return slices.Equal(found(), []string{"ring warning q/slow"})
	})
	if why := get[string](s, `select message from posthaste.doctor() where "check" = 'ring'`); !strings.Contains(why, "subscription 'slow' of queue 'q' has not handed out all of it") {
		t.Errorf("it is said that %q", why)
	}
	s.exec(`update posthaste.slots set live = true where slot <> 15`)
	until(t, "it is a fault", func() bool {
		return slices.Contains(found(), "ring fault q/slow")
	})
	s.exec(`update posthaste.slots set live = false where slot > 1`)

	// A copy.
	s.exec(`update posthaste.settings set spare_slots = 1`)
	s.exec(`update posthaste.identity set system_identifier = system_identifier + 1`)
	expect("a copy", "identity fault")

	// A new check needs only one more function.
	s.exec(`create function posthaste.doctor_weather() returns table ("check" text, level text, message text, hint text, queue text, subscription text)
		language sql as $$ select 'weather', 'warning', 'it rains', 'take a coat', null, null $$`)
	expect("a check of a user's own", "identity fault", "weather warning")
}
