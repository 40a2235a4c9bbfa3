-- posthaste.admit: says that this server may hand out since it was started.
-- After a crash it also moves the sequence a revolution ahead, before anything is
-- handed out: workers commit claims without waiting for the flush, and an id that
-- was lost with the crash must not come to mean another claim while its holder
-- lives on.
-- Updates: since_crash, slots, positions, the sequence of registrations. Deletes: carried.
-- Locks: the maintenance key, by the one that does it.
create or replace function posthaste.admit()
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_tries int := 0;
begin
  if exists (select from posthaste.since_crash) then
    -- Started anew, and not after a crash: nothing has to be moved, and nobody waits.
    update posthaste.since_crash x set started = pg_postmaster_start_time()
     where x.ctid = (select y.ctid from posthaste.since_crash y where y.started is distinct from pg_postmaster_start_time() for update skip locked);
    -- Or this was restored from a dump, which has the row.
    perform posthaste.skip_ids();
    return;
  end if;
  -- Who comes meanwhile waits for that to be committed, and not for the key, which it
  -- would keep to the end of its transaction, so that all go one after the other. In the
  -- end it waits for the key nevertheless, so that a deadlock is found.
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
        -- Nor may a worker that a standby did not hear of before it was promoted be
        -- taken for one that registers now: the next thousand ids are left out, and more by chance.
        perform setval('posthaste.registrations_id_seq', g.last_value + 1000 + floor(random() * 1000000)::bigint) from posthaste.registrations_id_seq g;
        insert into posthaste.since_crash (started) values (pg_postmaster_start_time());
      end if;
      exit;
    end if;
    perform pg_sleep(0.002);
  end loop;
end $$;
