-- posthaste.lock_lanes: takes all readers of a queue for the rest of the transaction, in
-- ascending order. Nothing of the queue is handed out until the transaction ends.
-- Arguments: queue; the subscription (null: all). Errors: PH503. Locks: the readers.
create or replace function posthaste.lock_lanes(p_queue int, p_subscription int default null)
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_reader bigint;
begin
  for v_reader in
    select posthaste.reader_key(s.queue_id, s.number, g, t)
      from posthaste.queue_settings q join posthaste.subscriptions s on s.queue_id = q.id and s.dropped_at is null
     cross join generate_series(0, q.lanes - 1) g cross join generate_series(0, 1) t
     where q.id = p_queue and (p_subscription is null or s.number = p_subscription) order by 1
  loop
    perform posthaste.lock_reader(v_reader, true);
  end loop;
end $$;
