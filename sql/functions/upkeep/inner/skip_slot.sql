-- posthaste.skip_slot: skips the unread entries of a slot for subscriptions that must not keep it
-- any longer: those with a max_lag, once the sequence left the slot longer ago than that. Their
-- cursors move past all entries that were written before that, and entries of the slot that are
-- due later are withdrawn. Skipped entries are counted, and recorded in actions.
-- Arguments: slot. Returns: the number of skipped entries.
-- Locks: the readers, without waiting. Inserts: claims, cancelled, action_records.
-- Updates: counters.
create or replace function posthaste.skip_slot(p_slot int)
returns bigint language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off as $$
declare
  v_now pg_snapshot := posthaste.snapshot_now();
  l posthaste.live := posthaste.live_slots();
  v_only posthaste.live := row(p_slot, p_slot, 1, 0, 1, 0);
  m posthaste.slots;
  u posthaste.subscriptions;
  r record;
  v_cursor posthaste.claims;
  v_reader bigint;
  v_fresh bigint;
  v_due bigint;
  v_skipped bigint := 0;
begin
  select * into m from posthaste.slots where slot = p_slot;
  if posthaste.slot_entered(p_slot) is not null then
    return 0;
  end if;
  for r in
    select s, g as lane from posthaste.subscriptions s join posthaste.queue_settings q on q.id = s.queue_id cross join generate_series(0, q.lanes - 1) g
     where s.max_lag is not null and s.dropped_at is null
       and (select min(n.opened_at) from posthaste.slots n where n.live and n.epoch > m.epoch) < clock_timestamp() - s.max_lag
     order by s.queue_id, s.number, g
  loop
    u := r.s;
    v_reader := posthaste.reader_key(u.queue_id, u.number, r.lane, 0);
    continue when not posthaste.lock_reader(v_reader, false) or not posthaste.lock_reader(v_reader + 1, false);
    l := posthaste.live_slots(); -- their newest claims may lie in a slot that the sequence entered since
    v_fresh := 0;
    v_cursor := posthaste.cursor_of(v_reader, l);
    if (select e.pos from posthaste.entries e
         where e.queue_id = u.queue_id and e.lane = r.lane and e.plain and posthaste.slot_of(e.pos) = p_slot
           and e.xid >= coalesce(pg_snapshot_xmin(v_cursor.s0), '0') and posthaste.taken(v_cursor, e.xid, e.pos, null) is not true
         order by e.xid, e.pos limit 1) is not null then
      select count(*) into v_fresh from (
        select from posthaste.entries e
         where e.queue_id = u.queue_id and e.lane = r.lane and e.plain
           and posthaste.in_slots(posthaste.slot_of(e.pos), l.a, l.b, l.c, l.d, l.e, l.f)
           and e.xid >= coalesce(pg_snapshot_xmin(v_cursor.s0), '0') and e.xid < m.left_before
           and posthaste.taken(v_cursor, e.xid, e.pos, null) is not true and posthaste.passes(u.filter, e.kind, e.headers)
           and not exists (select from posthaste.cancelled x where x.pos = e.pos and x.subscriber = v_reader >> 10)
         order by e.xid, e.pos) x;
      -- Every transaction below left_before has ended.
      v_cursor.window_claim := null;
      v_cursor.t0 := null;
      v_cursor.t1 := null;
      if pg_snapshot_xmax(v_cursor.s1) <= m.left_before then
        v_cursor.s0 := v_cursor.s1;
        v_cursor.s1 := format('%s:%s:', m.left_before, m.left_before)::pg_snapshot;
        v_cursor.last_xid := '0';
        v_cursor.last_pos := 0;
        v_cursor.ended := true;
      else
        v_cursor.s1 := (select format('%s:%s:%s', coalesce(min(x), pg_snapshot_xmax(v_cursor.s1)), pg_snapshot_xmax(v_cursor.s1), coalesce(string_agg(x::text, ',' order by x), ''))
                   from pg_snapshot_xip(v_cursor.s1) x where x >= m.left_before)::pg_snapshot;
        if not v_cursor.ended and v_cursor.last_xid < m.left_before then
          v_cursor.last_xid := (m.left_before::text::bigint - 1)::text::xid8;
          v_cursor.last_pos := 9223372036854775807;
        end if;
      end if;
      perform posthaste.put_claim(posthaste.without_places(v_cursor), null, null, null, false);
    end if;
    v_cursor := posthaste.cursor_of(v_reader + 1, l);
    with left_out as (
      insert into posthaste.cancelled (pos, subscriber, outcome, noted)
      select e.pos, v_reader >> 10, 'skipped', '3' from posthaste.entries e
       where e.queue_id = u.queue_id and e.lane = r.lane and e.due_at is not null and posthaste.slot_of(e.pos) = p_slot
         -- Entries due later than that are carried.
         and e.due_at <= clock_timestamp() and pg_visible_in_snapshot(e.xid, v_now) and posthaste.taken(v_cursor, e.xid, e.pos, e.due_at) is not true
         and posthaste.is_for(u, e.for_subscription, e.xid, e.due_at, e.kind, e.headers)
       order by e.due_at, e.pos limit 10000
      on conflict do nothing returning 1
    ) select count(*) into v_due from left_out;
    if v_fresh + v_due > 0 then
      update posthaste.counters set dropped = dropped + v_fresh + v_due where queue_id = u.queue_id and subscription = u.number;
      insert into posthaste.action_records (by, action, queue_id, details)
      values ('maintenance', 'skip', u.queue_id, jsonb_build_object('subscription', u.name, 'messages', v_fresh + v_due, 'max_lag', u.max_lag));
      v_skipped := v_skipped + v_fresh + v_due;
    end if;
  end loop;
  return v_skipped;
end $$;
