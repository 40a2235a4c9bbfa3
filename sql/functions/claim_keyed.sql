-- posthaste.claim_keyed: hands out the next messages of one lane of a keyed queue.
-- First what happened there is written down, then parked messages that may start
-- are let go, then the log is passed.
-- Arguments: the queue, subscription, lane; how many; the holder and its number, or
-- null for a lease by time; until when that lease runs; single: each delivery is
-- settled by itself; alone: one that must run alone may be handed out; wait:
-- whether to wait for the lane.
-- Returns: handed, or -1 if the lane is busy or not the caller's; made, its claims;
-- live, the slots that it looked into; wants_idle; next_due, if nothing was handed
-- out; other: whose claims in the lane are open (0: receivers'), where it is
-- another's.
-- A lane of an ordered queue has one holder at a time: another may claim when
-- none of the holder's claims there is open. Receivers count as one holder, and get
-- one unsettled message of a key.
-- Of a fair queue what lies beyond the claim is looked through for other keys.
-- Locks: the lane's readers, ascending. Inserts: claims, leases, parked,
-- settlements, entries, cancelled. Updates: keys, ahead.
create or replace function posthaste.claim_keyed(q posthaste.queue_settings, p_subscription int, p_lane int, p_max int,
  p_holder bigint, p_number bigint, p_until timestamptz, p_single boolean, p_alone boolean, p_wait boolean,
  out handed int, out made posthaste.claims[], out live posthaste.live, out wants_idle boolean, out next_due timestamptz, out other bigint)
language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_variable
declare
  v_reader bigint := posthaste.reader_key(q.id, p_subscription, p_lane, 0);
  v_subscriber bigint := v_reader >> 10;
  v_stop timestamptz;
  s pg_snapshot;
  t timestamptz;
  w posthaste.claims;
  c posthaste.claims;
  o record;
  e record;
  d record;
  v_keys text[];
  v_more text[] := '{}';
  v_busy bigint[];
  v_wrote boolean := false;
  v_complete boolean := true;
  v_rest boolean := false;
  v_first int;
  v_filter jsonb := (select x.filter from posthaste.subscriptions x where x.queue_id = q.id and x.number = p_subscription);
  v_sifts boolean;
  v_let_go int := 0;
begin
  handed := -1;
  wants_idle := false;
  if q.ordered and p_holder is null then
    q.key_concurrency := 1; -- also for let_go and pass_log
  end if;
  if not posthaste.lock_reader(v_reader, p_wait) or not posthaste.lock_reader(v_reader + 1, p_wait) then
    return;
  end if;
  s := posthaste.snapshot_now();
  t := clock_timestamp();
  -- What lies ahead comes first: beside that a claim parks no more than a slice.
  v_stop := case when not exists (select from posthaste.ahead z where z.subscriber = v_subscriber and z.lane = p_lane and not z.complete) then t + interval '50 milliseconds' else t end;
  live := posthaste.live_slots();
  w := posthaste.cursor_of(v_reader + 1, live);
  t := greatest(t, w.t1);
  -- As of the snapshot: of what is in flight no more, the events, which became
  -- visible at the same moment, are read below.
  o := posthaste.lane_open(coalesce(w.open, '{}'), p_holder, s);
  if q.ordered and (o.other is not null or posthaste.lane_wished(v_subscriber, p_lane, p_holder)) then
    other := coalesce(o.other, p_holder, 0);
    return;
  end if;
  handed := 0;
  made := '{}';

  d := posthaste.due_idle(q.id, p_lane, w, t, live);
  next_due := d.next_due;
  v_keys := '{}';
  if not d.idle then
    e := posthaste.lane_events(q.id, p_subscription, p_lane, w, s, t, live);
    w := e.w;
    v_complete := e.complete;
    d := posthaste.lane_apply(v_subscriber, p_lane, e.events, e.xids, e.poss, w.sifted is not null);
    v_keys := d.keys;
    w.sifted := w.sifted + d.sifted;
    v_wrote := cardinality(v_keys) > 0 or e.walked > 64 or not e.complete;
  end if;
  if q.key_concurrency is not null or cardinality(v_keys) > 0 or exists (select from posthaste.keys z where z.subscriber = v_subscriber and z.lane = p_lane and z.waits) then
    v_busy := posthaste.lane_busy(o.open, s);
  end if;
  -- Keys that wait for a run to end, where one has ended since the last claim.
  if v_busy is not null and w.busy is not null then
    v_keys := v_keys || array(
      select z.key
        from (select x.hash, count(*) as n from unnest(w.busy) x (hash) group by 1) b
        left join (select x.hash, count(*) as n from unnest(v_busy) x (hash) group by 1) y on y.hash = b.hash
       cross join lateral (select z.key from posthaste.keys z where z.subscriber = v_subscriber and z.lane = p_lane and z.hash = b.hash and z.waits) z
       where b.n > coalesce(y.n, 0) and z.key <> all (v_keys));
  end if;

  -- While both have something, each gets about half of a claim; of a claim of one,
  -- every other.
  v_first := case when p_max > 1 then (p_max + 1) / 2 when random() < 0.5 then 1 else 0 end;
  for v_turn in 1..2 loop
    exit when handed = p_max or handed > 0 and made[1].alone;
    if cardinality(v_keys) > 0 and (v_turn = 2 or v_first > 0) then
      d := posthaste.let_go(q, v_reader, 2 * w.seq + v_turn, v_keys, v_busy, case v_turn when 1 then v_first else p_max - handed end, handed > 0,
        p_holder, p_number, p_until, p_single, p_alone, t, live);
      v_keys := d.keys;
      v_busy := d.busy;
      wants_idle := wants_idle or d.wants_idle;
      v_wrote := true;
      if (d.made).places > 0 then
        made := made || d.made;
        handed := handed + (d.made).places;
        v_let_go := v_let_go + (d.made).places;
      end if;
    end if;
    exit when v_turn = 2 or handed > 0 and made[1].alone;
    continue when not v_complete;
    c := posthaste.cursor_of(v_reader, live);
    v_sifts := v_filter is not null
      or exists (select from posthaste.cancelled x where x.subscriber = v_subscriber and x.xid >= coalesce(pg_snapshot_xmin(c.s0), '0'));
    -- Of a fair queue the log is passed on, whatever was found, so that keys take
    -- turns.
    while handed < p_max or q.fair loop
      d := posthaste.pass_log(q, c, v_busy, p_max - handed, least(4096, case when q.fair and handed = p_max then 1024 when q.fair then 4096 else 4 * (p_max - handed) + 64 end),
        not (v_sifts or q.key_concurrency is not null or q.fair or q.key_rate is not null)
          and not exists (select from posthaste.keys z where z.subscriber = v_subscriber and z.lane = p_lane),
        v_sifts, v_filter, p_holder, p_number, p_until, p_single, s, t, live);
      c := d.c;
      v_busy := d.busy;
      v_more := v_more || d.again;
      if (d.made).places > 0 then
        made := made || d.made;
        handed := handed + (d.made).places - coalesce(bit_count((d.made).withheld), 0);
        v_wrote := true;
      end if;
      v_rest := not d.drained;
      exit when d.drained or clock_timestamp() > v_stop;
    end loop;
    -- More of the log is left than there was time for.
    if handed = 0 and v_rest then
      next_due := t;
    end if;
    v_keys := v_keys || array(select distinct x from unnest(v_more) x where x not in (select y from unnest(v_keys) y));
  end loop;
  if q.fair and v_rest and not c.ended then
    v_more := posthaste.read_ahead(q, c, v_filter, s, t, live);
    -- Those found now and the others by turns: neither a stream of new keys nor many
    -- old ones keep the rest waiting.
    v_keys := array(select x.key
                      from (select u.key, 2 * u.i as place from unnest(v_more) with ordinality u (key, i)
                            union all
                            select u.key, 2 * row_number() over (order by u.i) + 1 from unnest(v_keys) with ordinality u (key, i)
                             where u.key not in (select y from unnest(v_more) y)) x
                     order by x.place);
  elsif q.fair and c.ended then
    delete from posthaste.ahead z where z.subscriber = v_subscriber and z.lane = p_lane;
    if found then
      delete from posthaste.ahead_keys z where z.subscriber = v_subscriber and z.lane = p_lane;
    end if;
  end if;
  -- Behind all others' events, so that keys take turns.
  if cardinality(v_keys) > 0 then
    perform posthaste.lane_event(v_subscriber, p_lane, jsonb_agg(jsonb_build_object('key', x.key) order by x.i), t)
       from (select u.key, u.i from unnest(v_keys) with ordinality u (key, i)) x group by (x.i - 1) / 256;
    v_wrote := true;
    if handed = 0 and not wants_idle then
      next_due := t;
    end if;
  end if;
  if handed = 0 and v_busy <> '{}' and exists (select from posthaste.keys z where z.subscriber = v_subscriber and z.lane = p_lane and z.waits) then
    -- Whoever settles wakes the sleepers if it sees that a key waits; it may not.
    next_due := least(next_due, t + interval '250 milliseconds');
  end if;
  if not v_wrote then
    return;
  end if;
  if q.ordered and handed > 0 then
    delete from posthaste.lane_wishes y where y.subscriber = v_subscriber and y.lane = p_lane;
  end if;
  -- The cursor of events has the lane's state.
  w := posthaste.without_places(w);
  w.total := w.total + v_let_go;
  w.open := o.open || array(select x.id from unnest(made) x);
  w.busy := v_busy;
  w := posthaste.put_claim(w, null, null, null, false);
end $$;
