-- posthaste.admit: records that this server may hand out messages since its start.
-- After a crash it first moves the sequence ahead by a revolution. Workers commit claims
-- without waiting for the flush, and an id that was lost with the crash must not be used for
-- another claim while its holder still runs.
-- Updates: since_crash, slots, positions, the sequence of registrations. Deletes: carried.
-- Locks: the maintenance key, by the session that moves the sequence.
create or replace function posthaste.admit()
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_tries int := 0;
begin
  if exists (select from posthaste.since_crash) then
    -- Started again, and not after a crash: nothing has to be moved, and no session waits.
    update posthaste.since_crash x set started = pg_postmaster_start_time()
     where x.ctid = (select y.ctid from posthaste.since_crash y where y.started is distinct from pg_postmaster_start_time() for update skip locked);
    -- Or the database was restored from a dump that contains the row.
    perform posthaste.skip_ids();
    return;
  end if;
  -- Other sessions wait until that is committed, and not for the key. The key would be held
  -- to the end of each transaction, which would run all of them one after the other. At the
  -- end of the wait they wait for the key all the same, so that a deadlock is detected.
  while not exists (select from posthaste.since_crash) loop
    v_tries := v_tries + 1;
    if v_tries > 500 then
      perform pg_advisory_xact_lock(posthaste.lock_key(6, 0));
    end if;
    if pg_try_advisory_xact_lock(posthaste.lock_key(6, 0)) then
      if not exists (select from posthaste.since_crash) then
        perform posthaste.mark_entered(p.last_value >> 22) from posthaste.positions p;
        perform posthaste.skip_ids();
        perform posthaste.mark_entered(p.last_value >> 22) from posthaste.positions p;
        -- A worker that registered before a standby without its row was promoted must not be
        -- mistaken for one that registers now: skip a thousand ids, and a random number more.
        perform setval('posthaste.registrations_id_seq', g.last_value + 1000 + floor(random() * 1000000)::bigint) from posthaste.registrations_id_seq g;
        insert into posthaste.since_crash (started) values (pg_postmaster_start_time());
      end if;
      exit;
    end if;
    perform pg_sleep(0.002);
  end loop;
end $$;
