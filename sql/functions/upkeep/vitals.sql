-- posthaste.vitals: the health of the ledger itself in numbers, for metrics at every scrape.
-- Its cost does not depend on the number of waiting messages.
-- Returns one row:
--   slots_free       of the ring's 16
--   slots_wanted     how many should be free (setting spare_slots)
--   slot_age         since when the oldest slot in use has been in use
--   alive, overdue   workers with a heartbeat in time; workers that missed their lease and
--                    will be declared lost
--   heartbeat_age    the longest time since the last heartbeat of one of them
--   doorbells        connections of this database on which workers sleep, recognized by
--                    the end of their application_name
--   upkeep_age       since the last round of upkeep
-- Reads: slots, settings, registrations, counted, pg_stat_activity. Locks: none.
create or replace function posthaste.vitals(out slots_free int, out slots_wanted int, out slot_age interval, out alive int, out overdue int,
  out heartbeat_age interval, out doorbells int, out upkeep_age interval)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_now timestamptz := clock_timestamp();
begin
  select count(*) filter (where not s.live), v_now - min(s.opened_at) filter (where s.live) into slots_free, slot_age from posthaste.slots s;
  select x.spare_slots into slots_wanted from posthaste.settings x;
  select count(*) filter (where not o.late), count(*) filter (where o.late), v_now - min(o.heartbeat_at)
    into alive, overdue, heartbeat_age
    from (select w.heartbeat_at, posthaste.worker_overdue(w) as late from posthaste.registrations w where w.lost_at is null and w.ended_at is null) o;
  select count(*) into doorbells from pg_stat_activity a where a.datname = current_database() and a.application_name like '% doorbell';
  select v_now - c.at into upkeep_age from posthaste.counted c;
end $$;
