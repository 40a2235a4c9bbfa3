-- posthaste.drop_queue: drops a queue with everything in it. Closes it for
-- senders, waits for those in flight; from then on its entries and claims count
-- as settled, and its space comes back with the ring.
-- Errors: PH404. Locks: the queue's key, exclusive (senders hold it shared).
-- Updates: queue_settings. Deletes: dead_letter_entries, counters, lease_cursors,
-- held_claims.
create or replace function posthaste.drop_queue(name text)
returns void language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_id int;
begin
  perform pg_advisory_xact_lock(posthaste.lock_key(7, hashtext(drop_queue.name)));
  update posthaste.queue_settings q set dropped_at = clock_timestamp()
   where q.name = drop_queue.name and q.dropped_at is null returning q.id into v_id;
  if v_id is null then
    raise exception using errcode = 'PH404', column = 'queue', message = format('queue %L does not exist', drop_queue.name);
  end if;
  delete from posthaste.dead_letter_entries where queue_id = v_id;
  delete from posthaste.counters where queue_id = v_id;
  delete from posthaste.held_claims where subscriber >> 10 = v_id;
  delete from posthaste.lease_cursors where subscriber >> 10 = v_id;
end $$;
