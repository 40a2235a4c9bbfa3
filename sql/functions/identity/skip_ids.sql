-- posthaste.skip_ids: moves the sequence of ids ahead by a revolution, once after each crash,
-- promotion or restore of the server, before the first id is used.
-- Other systems, such as inboxes, may know ids that were lost with the old server; these must
-- not be used for other messages. The size of an unlogged index records that this was done,
-- and not a row: every snapshot sees the size at once, it survives a rollback of the
-- transaction, and no dump contains it. The lock is released with the subtransaction that
-- takes it, so that the caller's transaction keeps nothing. The changes made under it are
-- never rolled back.
-- Locks: one of its own, released. Advances: positions, skipped_from. Inserts: skipped.
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
      null; -- releases the lock
    end;
  end if;
  perform set_config('posthaste.ids_skipped', 'yes', false);
end $$;
