-- posthaste.purge: withdraws all waiting messages of a queue, including scheduled ones and
-- retries, from every subscription, as of one moment. Deliveries that were handed out continue,
-- and may be retried if they fail.
-- Arguments: queue; by: the actor to record.
-- Returns: for each subscription the number of withdrawn messages; with a filter it includes
-- those that the filter excludes.
-- The fresh readers move to the newest snapshot; the waiting entries of the due tracks and
-- parked messages are listed as cancelled. Until the transaction ends no other session claims
-- from the queue.
-- Errors: PH404, PH400, PH503. Locks: the queue's settings, the maintenance key, all readers of
-- the queue. Inserts: claims, cancelled, history, action_records.
-- Deletes: parked, keys. Updates: queue_settings, counters.
create or replace function posthaste.purge(queue text, by text default session_user)
returns table (subscription text, purged bigint)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
  v_queue int := posthaste.find_queue(purge.queue);
  l posthaste.live;
  v_purge pg_snapshot;
  u posthaste.subscriptions;
  v_fresh posthaste.claims;
  v_due posthaste.claims;
  r record;
begin
  perform posthaste.refuse_copy();
  -- First: it may wait for a sender, and no other session should wait for this one meanwhile.
  perform posthaste.lock_queue(v_queue, 'settings');
  perform pg_advisory_xact_lock(posthaste.lock_key(6, 0));
  perform posthaste.lock_lanes(v_queue);
  -- It counts the entries that it sees, and none is handed out meanwhile.
  perform posthaste.count_up();
  v_purge := (select k.s from posthaste.counted k);
  l := posthaste.live_slots();
  for r in select s, g as lane, q.keyed from posthaste.queue_settings q join posthaste.subscriptions s on s.queue_id = q.id and s.dropped_at is null
            cross join generate_series(0, q.lanes - 1) g where q.id = v_queue order by s.number, g loop
    u := r.s;
    v_fresh := posthaste.cursor_of(posthaste.reader_key(v_queue, u.number, r.lane, 0), l);
    v_fresh := posthaste.without_places(v_fresh);
    if r.keyed then
      v_fresh.part := 4;
      if r.lane = 0 then
        perform posthaste.unpark(v_queue::bigint << 10 | u.number, null, 'cancelled', v_purge);
      end if;
    end if;
    v_fresh.t0 := null;
    v_fresh.t1 := null;
    if not v_fresh.ended then
      -- The rest of its window: a slice without places, from here to its end.
      v_fresh.first_xid := v_fresh.last_xid;
      v_fresh.first_pos := v_fresh.last_pos;
      v_fresh.ended := true;
      v_fresh := posthaste.put_claim(v_fresh, null, null, null, false);
    end if;
    v_fresh.s0 := v_fresh.s1;
    v_fresh.s1 := v_purge;
    v_fresh.window_claim := null;
    v_fresh.first_xid := '0';
    v_fresh.first_pos := 0;
    v_fresh.last_xid := '0';
    v_fresh.last_pos := 0;
    v_fresh.ended := true;
    perform posthaste.put_claim(v_fresh, null, null, null, false);
    v_due := posthaste.cursor_of(posthaste.reader_key(v_queue, u.number, r.lane, 1), l);
    insert into posthaste.cancelled (pos, subscriber, outcome, noted)
    select e.pos, v_queue::bigint << 10 | u.number, 'cancelled', '3'
      from posthaste.entries e
     where e.queue_id = v_queue and e.lane = r.lane and e.due_at is not null
       and posthaste.in_slots((e.pos >> 22) & 15, l.a, l.b, l.c, l.d, l.e, l.f)
       and pg_visible_in_snapshot(e.xid, v_purge) and posthaste.taken(v_due, e.xid, e.pos, e.due_at) is not true
       and e.message_id is distinct from 0 -- events
       and posthaste.is_for(u, e.for_subscription, e.xid, e.due_at, e.kind, e.headers)
    on conflict do nothing;
  end loop;
  -- Read after the snapshot was taken: entries that the snapshot sees have an id up to it.
  update posthaste.queue_settings set purged = v_purge, purged_to = (select p.last_value from posthaste.positions p) where id = v_queue;
  return query
    with emptied as (
      update posthaste.counters k set dropped = k.sent + k.again - k.sifted - k.handed
        from posthaste.counters b
       where k.queue_id = v_queue and b.queue_id = k.queue_id and b.subscription = k.subscription
      returning k.subscription, greatest(k.dropped - b.dropped, 0) as taken
    ), noted as (
      insert into posthaste.action_records (by, action, queue_id, details)
      select coalesce(purge.by, session_user), 'purge', v_queue, jsonb_object_agg(s.name, e.taken)
        from emptied e join posthaste.subscriptions s on s.queue_id = v_queue and s.number = e.subscription
    )
    select s.name::text, e.taken from emptied e join posthaste.subscriptions s on s.queue_id = v_queue and s.number = e.subscription order by 1;
end $$;
