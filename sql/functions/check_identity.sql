-- posthaste.check_identity: refuses in a database that is a copy.
-- A database restored from a dump, cloned or moved by logical replication has
-- other transaction ids, and no trace in the ids shows it; claims by stored
-- snapshots would skip messages in silence. A backend never changes its
-- database, so the answer is remembered for the session.
-- After a crash it also moves the sequence a revolution ahead, before anything is
-- handed out: workers commit claims without waiting for the flush, and an id that
-- was lost with the crash must not come to mean another claim while its holder
-- lives on. Sessions do not survive a crash, so this too is asked once a session.
-- Errors: PH503. Reads: identity, since_crash. Updates: slots, positions,
-- the sequence of registrations.
-- Locks: after a crash, the maintenance key, by the one that moves the sequence.
create or replace function posthaste.check_identity()
returns void language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  v_tries int := 0;
begin
  perform posthaste.refuse_copy();
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
        perform posthaste.jump();
        -- Nor may a worker that a standby did not hear of before it was promoted be
        -- taken for one that registers now.
        perform posthaste.skip_workers();
        insert into posthaste.since_crash default values;
      end if;
      exit;
    end if;
    perform pg_sleep(0.002);
  end loop;
  perform set_config('posthaste.identity_checked', 'yes', false);
end $$;
