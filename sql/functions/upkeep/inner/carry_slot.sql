-- posthaste.carry_slot: moves data out of a slot that must outlive it: it writes cursors of idle
-- readers again, moves those that sift forward to their next message, and appends entries due
-- later again and cancels the old ones, exactly, under the locks of their readers. A busy reader
-- is left for the next round. One round carries at most 1,000 cursors and 10,000 entries; the
-- table carried has the progress in a lane, so that the next round does not walk over it again.
-- Arguments: slot. Returns: the number of carried cursors and entries.
-- Locks: readers, without waiting. Inserts: claims, entries_other, words, cancelled.
-- Updates: carried, counters.
create or replace function posthaste.carry_slot(p_slot int)
returns int language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_hashjoin = off set enable_mergejoin = off set enable_material = off set enable_memoize = off set jit = off as $$
declare
  l posthaste.live := posthaste.live_slots();
  v_after timestamptz := clock_timestamp() + (select carry_after from posthaste.settings);
  q record;
  u record;
  v_cursor posthaste.claims;
  k posthaste.carried;
  v_reader bigint;
  v_free boolean;
  v_reached timestamptz;
  v_rows int;
  v_due timestamptz;
  v_pos bigint;
  v_left int := 10000;
  v_carried int := 0;
begin
  -- Only readers with something to carry are locked.
  for v_reader in
    select posthaste.reader_key(x.id, s.number, g, t)
      from posthaste.queue_settings x
     cross join lateral (select s.number from posthaste.subscriptions s where s.queue_id = x.id and s.dropped_at is null order by s.number) s
     cross join lateral generate_series(0, x.lanes - 1) g
     cross join lateral generate_series(0, 1) t
     where x.dropped_at is null
       and (select y.slot from posthaste.claims y
             where y.reader = posthaste.reader_key(x.id, s.number, g, t) and posthaste.in_slots(y.slot, l.a, l.b, l.c, l.d, l.e, l.f)
             order by y.reader desc, y.seq desc limit 1) = p_slot
     limit 1000
  loop
    if posthaste.lock_reader(v_reader, false) then
      -- Only now: its newest claim may lie in a slot that the sequence entered since.
      l := posthaste.live_slots();
      v_cursor := posthaste.cursor_of(v_reader, l);
      if v_cursor.slot = p_slot then
        perform posthaste.put_claim(posthaste.without_places(v_cursor), null, null, null, false);
        v_carried := v_carried + 1;
      end if;
    end if;
  end loop;
  for u in select s.queue_id, s.number, x.lanes from posthaste.subscriptions s join posthaste.queue_settings x on x.id = s.queue_id
            where s.filter is not null and s.dropped_at is null order by 1, 2 loop
    for v_lane in 0..u.lanes - 1 loop
      v_carried := v_carried + posthaste.sift_on(posthaste.reader_key(u.queue_id, u.number, v_lane, 0), l)::int;
    end loop;
  end loop;
  -- While the slot may still get entries, carrying would have to start over.
  if posthaste.slot_entered(p_slot) is not null then
    return v_carried;
  end if;
  for q in
    select x.id, g as lane
      from posthaste.queue_settings x
     cross join lateral generate_series(0, x.lanes - 1) g
      left join posthaste.carried y on y.slot = p_slot and y.queue_id = x.id and y.lane = g
     where x.dropped_at is null
       and (select e.pos from posthaste.entries e
             where e.queue_id = x.id and e.lane = g and e.due_at is not null and posthaste.slot_of(e.pos) = p_slot
               and (e.due_at, e.pos) > (greatest(v_after, y.due_at), case when y.due_at > v_after then y.pos else 9223372036854775807 end)
               and posthaste.to_carry(x.id, e.pos, e.for_subscription)
             order by e.due_at, e.pos limit 1) is not null
  loop
    v_free := true;
    v_reached := v_after;
    for u in select x.number from posthaste.subscriptions x where x.queue_id = q.id and x.dropped_at is null order by x.number loop
      v_reader := posthaste.reader_key(q.id, u.number, q.lane, 1);
      v_free := v_free and posthaste.lock_reader(v_reader, false);
      if v_free then
        l := posthaste.live_slots();
        v_cursor := posthaste.cursor_of(v_reader, l);
        v_reached := greatest(v_reached, v_cursor.t1);
      end if;
    end loop;
    continue when not v_free;
    k := null;
    select * into k from posthaste.carried y where y.slot = p_slot and y.queue_id = q.id and y.lane = q.lane;
    if k.slot is null or k.due_at <= v_reached then
      k.since := v_reached;
      k.due_at := v_reached;
      k.pos := 9223372036854775807;
    end if;
    -- The transaction's id comes before the positions: reclaiming relies on it.
    perform pg_current_xact_id();
    -- No entry due after all cursors' times can have been handed out. Positions are taken
    -- here because finding the new rows by their contents is quadratic in their number.
    with far as materialized (
      select e.*, nextval('posthaste.positions') as new_pos from posthaste.entries e
       where e.queue_id = q.id and e.lane = q.lane and e.due_at is not null and (e.due_at, e.pos) > (k.due_at, k.pos) and posthaste.slot_of(e.pos) = p_slot
         and posthaste.to_carry(q.id, e.pos, e.for_subscription)
       -- Ordered: otherwise the choice of the index is left to chance.
       order by e.due_at, e.pos
       limit v_left
    ), withdrawn as (
      insert into posthaste.cancelled (pos, subscriber, outcome)
      select f.pos, q.id::bigint << 10 | x.number, 'carried'
        from far f join posthaste.subscriptions x on x.queue_id = q.id and x.dropped_at is null
         and (f.for_subscription is null or f.for_subscription = x.number)
      on conflict (pos, subscriber) do update set outcome = excluded.outcome
    ), counted as (
      update posthaste.counters n set dropped = n.dropped + m.rows
        from (select f.for_subscription, count(*) as rows from far f where f.for_subscription is not null and f.message_id <> 0 group by 1) m -- events are not counted
       where n.queue_id = q.id and n.subscription = m.for_subscription
    ), again as (
      insert into posthaste.entries_other (pos, ord, message_id, created_at, due_at, queue_id, lane, for_subscription, attempt, failures, losses, losses_alone, ages_from,
                                     content_type, key, kind, reference, headers, terms, trace, story, payload)
      select f.new_pos, f.ord, coalesce(f.message_id, f.pos), f.created_at, least(f.due_at, posthaste.last_time() - interval '1 second'), f.queue_id, f.lane, f.for_subscription, f.attempt, f.failures, f.losses, f.losses_alone, f.ages_from,
             f.content_type, f.key, f.kind, f.reference, f.headers, f.terms, f.trace, f.story, f.payload
        from far f
      returning pos, message_id, queue_id, lane, reference, terms
    ), named as (
      insert into posthaste.words (slot, message_id, pos, queue_id, lane, word)
      select posthaste.slot_of(a.pos), a.message_id, a.pos, a.queue_id, a.lane, w
        from again a cross join lateral unnest(posthaste.words_of(a.reference, a.terms)) w where num_nonnulls(a.reference, a.terms) > 0
    ), still_withdrawn as (
      -- Subscriptions that it was withdrawn from before, or that began after it was sent:
      -- for those the new entry would be a new message.
      insert into posthaste.cancelled (pos, subscriber, outcome, noted, copied)
      select f.new_pos, q.id::bigint << 10 | x.number, coalesce(z.outcome, 'earlier'), '3', coalesce(z.copied, false)
        from far f
        join posthaste.subscriptions x on f.message_id is distinct from 0 and x.queue_id = q.id and x.dropped_at is null and (f.for_subscription is null or f.for_subscription = x.number)
        -- A join may compare each with all withdrawn entries.
        left join lateral (select * from posthaste.cancelled y where y.pos = f.pos and y.subscriber = q.id::bigint << 10 | x.number order by y.pos, y.subscriber limit 1) z on true
       where z.pos is not null
          or x.sifts and f.for_subscription is null and pg_visible_in_snapshot(f.xid, x.since) and not (x.scheduled and f.due_at > x.created_at)
      on conflict (pos, subscriber) do nothing
    )
    select (select count(*) from far), f.due_at, f.pos into v_rows, v_due, v_pos from far f order by f.due_at desc, f.pos desc limit 1;
    continue when v_rows is null;
    insert into posthaste.carried (slot, queue_id, lane, since, due_at, pos) values (p_slot, q.id, q.lane, k.since, v_due, v_pos)
    on conflict (slot, queue_id, lane) do update set since = excluded.since, due_at = excluded.due_at, pos = excluded.pos;
    v_carried := v_carried + v_rows;
    v_left := v_left - v_rows;
    exit when v_left = 0;
  end loop;
  return v_carried;
end $$;
