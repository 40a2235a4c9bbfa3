-- posthaste.ring_seen: the values that decide whether a slot that was found free is still free
-- later: the sequence's position and the readers.
-- Reads: positions, queue_settings, subscriptions.
create or replace function posthaste.ring_seen(out last bigint, out readers bigint[])
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  select p.last_value into last from posthaste.positions p;
  readers := array(select posthaste.reader_key(q.id, s.number, q.lanes, 0)
                     from posthaste.queue_settings q join posthaste.subscriptions s on s.queue_id = q.id
                    where q.dropped_at is null and s.dropped_at is null order by 1);
end $$;
