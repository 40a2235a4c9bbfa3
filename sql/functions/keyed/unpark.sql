-- posthaste.unpark: withdraws parked messages from a subscription: no claim will hand them
-- out.
-- Arguments: subscriber; message ids (null: all); how they ended: 'cancelled' or 'done'; for
-- all, the snapshot: only messages that were parked for it are withdrawn, because settling
-- parks without the lanes' locks, and messages parked after the counters were updated would
-- not be counted.
-- Returns: the number of withdrawn messages. Given ids, the next claim looks at their keys; if
-- all are withdrawn, no key is left to look at.
-- Called under the lanes' locks. Deletes: parked, keys. Inserts: cancelled,
-- entries_other (events); history, where the queue has a retention. Updates: keys.
create or replace function posthaste.unpark(p_subscriber bigint, p_ids bigint[], p_outcome text, p_seen pg_snapshot default null)
returns bigint language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
  v_now timestamptz := clock_timestamp();
  l posthaste.live;
  v_rows tid[];
  v_gone bigint;
begin
  if p_ids is null then
    l := posthaste.live_slots();
    -- In one statement: an event tells of every message that is parked without the locks.
    with late as materialized (
      select (o ->> 'id')::bigint as id
        from posthaste.queue_settings q
       cross join generate_series(0, q.lanes - 1) g
       cross join lateral (
         select e.story from posthaste.entries e
          where e.queue_id = q.id and e.lane = g and e.due_at is not null and e.xid >= pg_snapshot_xmin(p_seen)
            and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
            and not pg_visible_in_snapshot(e.xid, p_seen) and e.message_id = 0 and e.for_subscription = (p_subscriber & 1023)
          order by e.xid, e.pos) e
       cross join jsonb_array_elements(e.story) o
       where q.id = p_subscriber >> 10
    )
    select array(select p.ctid from posthaste.parked p where p.subscriber = p_subscriber and p.message_id not in (select x.id from late x where x.id is not null)) into v_rows;
  else
    v_rows := array(
      select p.ctid from (select distinct x as id from unnest(p_ids) x) u
       cross join lateral (select x.ctid from posthaste.parked x where x.message_id = u.id and x.subscriber = p_subscriber order by x.message_id, x.subscriber) p);
  end if;
  -- By ctid: a join may compare each id with all parked messages. The locks exclude
  -- other updates; a row updated meanwhile would be skipped.
  with gone as (
    delete from posthaste.parked p where p.ctid = any (v_rows) returning p.*
  ), noted as (
    -- A purge counts all its messages itself.
    insert into posthaste.cancelled (pos, subscriber, outcome, noted, copied)
    select distinct on (g.pos) g.pos, g.subscriber, p_outcome, case when p_ids is null then '3' else pg_current_xact_id() end, true from gone g where g.pos is not null
    -- Withdrawn from the log when it was parked ahead of the cursor, which is not counted.
    on conflict (pos, subscriber) do update set outcome = excluded.outcome, noted = case when cancelled.outcome = 'parked' then excluded.noted else cancelled.noted end
  ), kept as (
    insert into posthaste.history (part, subscription, queue_id, message_id, created_at, settled_at, expires_at, state,
                                   content_type, key, kind, reference, headers, terms, attempts, payload)
    select posthaste.history_part(v_now + q.retention, q.retention), g.subscriber & 1023, q.id, g.message_id, g.created_at, v_now, v_now + q.retention, p_outcome,
           g.content_type, nullif(g.key, ''), g.kind, g.reference, posthaste.all_headers(g.headers, g.trace), g.terms, coalesce(g.story, '[]'), case when q.retain_payload then g.payload end
      from gone g join posthaste.queue_settings q on q.id = g.subscriber >> 10 and q.retention is not null
  ), events as (
    select posthaste.lane_event(p_subscriber, g.lane, jsonb_agg(distinct jsonb_build_object('key', g.key)), v_now) from gone g where p_ids is not null group by g.lane
  )
  select count(*) + 0 * (select count(*) from events) into v_gone from gone;
  if p_ids is null then
    update posthaste.keys k set blocked = false, low_ord = '0', low_id = 0, waits = false, turn = null where k.subscriber = p_subscriber and k.blocked;
    delete from posthaste.keys k where k.subscriber = p_subscriber and k.paused_at is null and k.stopped_by is null and k.tokens is null;
  elsif v_gone > 0 and not posthaste.no_wake() then
    perform posthaste.ring((p_subscriber >> 10)::int);
  end if;
  return v_gone;
end $$;
