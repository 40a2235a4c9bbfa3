-- posthaste.skip_ids: moves the sequence of ids a revolution ahead, once after each crash,
-- promotion or restore of the server, before the first id is taken.
-- Ids that were lost with the old server are known outside, to inboxes for example, and must
-- not come to mean other messages. The size of an unlogged index tells whether that has
-- happened, and not a row: the size is what every snapshot sees at once, it stays where
-- the transaction rolls back, and no dump contains it. The lock
-- goes with the subtransaction that takes it, so that the caller's transaction keeps
-- nothing; what is done within is never rolled back.
-- Locks: one of its own, given back. Advances: positions, skipped_from. Inserts: skipped.
create or replace function posthaste.skip_ids()
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  if pg_relation_size('posthaste.skipped_at') <= current_setting('block_size')::int then
    begin
      perform pg_advisory_xact_lock(posthaste.lock_key(11, 0));
      if pg_relation_size('posthaste.skipped_at') <= current_setting('block_size')::int then
        perform setval('posthaste.skipped_from', p.last_value) from posthaste.positions p;
        perform setval('posthaste.positions', posthaste.slot_start(p.last_value, ((p.last_value >> 22) & 15)::int), false) from posthaste.positions p;
        insert into posthaste.skipped default values;
      end if;
      raise division_by_zero;
    exception when division_by_zero then
      null; -- only for the lock
    end;
  end if;
  perform set_config('posthaste.ids_skipped', 'yes', false);
end $$;
