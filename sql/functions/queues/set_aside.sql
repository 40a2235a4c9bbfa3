-- posthaste.set_aside: messages that wait for a worker that handles their kind.
-- Returns: for each subscription and kind how many wait, of which it counts 4,096; since when the
-- first of them waits; known: a running worker has said that it handles the kind; paused: the kind is paused.
-- Reads: queue_settings, registrations, and the tables of due_slice.
create or replace function posthaste.set_aside()
returns table (queue_id int, subscription int, kind text, waiting bigint, since timestamptz, known boolean, paused boolean) language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp as $$
declare
  s pg_snapshot := pg_current_snapshot();
  l posthaste.live := posthaste.live_slots();
begin
  return query
    select q.id, u.number::int, k.kind, r.places, r.since,
           exists (select from posthaste.registrations w
                    where w.lost_at is null and w.ended_at is null and w.kinds -> q.name -> u.name ? k.kind), coalesce(k.kind = any (q.kinds_paused), false)
      from posthaste.queue_settings q
      join posthaste.subscriptions u on u.queue_id = q.id and u.dropped_at is null
     cross join lateral unnest(q.kind_lanes) with ordinality k (kind, n)
     cross join lateral posthaste.ready_due(q.id, u.number::int, 4 * q.width + k.n::int - 1, 4096, s, l) r
     where q.dropped_at is null and k.kind = any (q.kinds_aside) and r.places > 0;
end $$;
