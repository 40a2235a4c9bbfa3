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
-- Keys that may have something to hand out stand in line: a claim takes the first of
-- them, and writes nothing for the others, however many they are.
-- Locks: the lane's readers, ascending. Inserts: claims, leases, parked,
-- settlements, entries_other, words, cancelled, ahead, ahead_keys. Updates: keys, ahead_keys.
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
  v_now timestamptz;
  v_back boolean; -- the clock was set back behind the time of events
  v_renewed boolean := false;
  w posthaste.claims;
  c posthaste.claims;
  o record;
  e record;
  d record;
  v_keys text[];
  v_came text[] := '{}';
  v_more text[] := '{}';
  v_counts bigint[] := '{}';
  v_turn bigint;
  v_line boolean;
  v_waits boolean;
  v_most int := p_max + 16; -- of the keys in line some may turn out to have nothing
  a posthaste.ahead;
  v_busy bigint[];
  v_wrote boolean := false;
  v_complete boolean := true;
  v_rest boolean := false;
  v_first int;
  v_filter jsonb;
  v_gone boolean;
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
  -- Once it has the lane: what is parked for who was unsubscribed meanwhile, nobody would
  -- take away.
  select x.filter, x.dropped_at is not null into v_filter, v_gone from posthaste.subscriptions x where x.queue_id = q.id and x.number = p_subscription;
  if v_gone then
    return;
  end if;
  s := posthaste.snapshot_now();
  t := clock_timestamp();
  -- What lies ahead comes first: beside that a claim parks no more than a slice.
  if q.fair then
    select * into a from posthaste.ahead z where z.subscriber = v_subscriber and z.lane = p_lane order by z.subscriber desc, z.lane desc, z.id desc limit 1;
  end if;
  v_stop := case when coalesce(a.complete, true) then t + interval '50 milliseconds' else t end;
  live := posthaste.live_slots();
  w := posthaste.cursor_of(v_reader + 1, live);
  v_now := t;
  t := greatest(t, w.t1);
  v_back := q.key_rate is not null and posthaste.token_time(t) < t;
  if q.key_rate is not null and w.at > v_now + interval '2 seconds' then
    -- Since the last claim. With this one that is known.
    perform posthaste.renew_tokens(q, v_subscriber, p_lane, v_now, t);
    v_renewed := true;
  end if;
  -- As of the snapshot: of what is in flight no more, the events, which became
  -- visible at the same moment, are read below.
  o := posthaste.lane_open(coalesce(w.open, '{}'), p_holder, s);
  if q.ordered then
    -- Or it is to be left to another worker that is alive and said so within the last 5 s.
    if o.other is not null or exists (
        select from posthaste.lane_wishes y
         where y.subscriber = v_subscriber and y.lane = p_lane and y.worker <> coalesce(p_holder, 0)
           and y.at > clock_timestamp() - interval '5 seconds'
           and (y.worker = 0 or exists (select from posthaste.registrations r where r.id = y.worker and r.lost_at is null and r.ended_at is null))) then
      other := coalesce(o.other, p_holder, 0);
      return;
    end if;
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
    v_came := d.keys;
    w.sifted := w.sifted + d.sifted;
    v_wrote := cardinality(v_came) > 0 or e.walked > 64 or not e.complete;
  end if;
  v_wrote := v_wrote or v_renewed;
  select exists (select from posthaste.keys z where z.subscriber = v_subscriber and z.lane = p_lane and z.waits), posthaste.has_line(v_subscriber, p_lane, w.turns)
    into v_waits, v_line;
  if v_line then
    d := posthaste.line_of(v_subscriber, p_lane, w.turns, v_most);
    w.turns := d.turns;
    v_keys := d.keys;
    v_line := cardinality(v_keys) >= v_most;
  end if;
  if v_back then
    -- No event tells who has a token by it.
    v_came := v_came || array(
      select z.key from posthaste.keys z
       where z.subscriber = v_subscriber and z.lane = p_lane and z.lane >= 0 and z.wake_at <= v_now
         and z.blocked and z.paused_at is null and z.stopped_by is null and z.key not in (select x from unnest(v_came) x)
       order by z.wake_at limit v_most);
  end if;
  w.turns := coalesce(w.turns, array[0, 0, 0]);
  v_turn := w.turns[3];
  if q.key_concurrency is not null or v_waits or cardinality(v_keys) > 0 or cardinality(v_came) > 0 then
    v_busy := posthaste.lane_busy(o.open, s);
  end if;
  -- Keys that wait for a run to end, where one has ended since the last claim.
  if v_busy is not null and w.busy is not null then
    v_came := v_came || array(
      select z.key
        from (select x.hash, count(*) as n from unnest(w.busy) x (hash) group by 1) b
        left join (select x.hash, count(*) as n from unnest(v_busy) x (hash) group by 1) y on y.hash = b.hash
       cross join lateral (select z.key from posthaste.keys z where z.subscriber = v_subscriber and z.lane = p_lane and z.hash = b.hash and z.waits offset 0) z
       where b.n > coalesce(y.n, 0) and z.key not in (select x from unnest(v_came) x));
  end if;
  v_keys := v_keys || array(select x from unnest(v_came) x where x not in (select y from unnest(v_keys) y));

  -- While both have something, each gets about half of a claim; of a claim of one,
  -- every other.
  v_first := case when p_max > 1 then (p_max + 1) / 2 when random() < 0.5 then 1 else 0 end;
  for v_round in 1..2 loop
    exit when handed = p_max or handed > 0 and made[1].alone;
    -- Not while there are events to read: an earlier message of a key may have come back.
    if v_complete and cardinality(v_keys) > 0 and (v_round = 2 or v_first > 0) then
      d := posthaste.let_go(q, v_reader, 2 * w.seq + v_round, v_keys, v_busy, v_turn, case v_round when 1 then v_first else p_max - handed end, handed > 0,
        p_holder, p_number, p_until, p_single, p_alone, t, live);
      v_keys := d.keys;
      v_busy := d.busy;
      v_turn := d.turn;
      wants_idle := wants_idle or d.wants_idle;
      v_wrote := true;
      if (d.made).places > 0 then
        made := made || d.made;
        handed := handed + (d.made).places;
        v_let_go := v_let_go + (d.made).places;
      end if;
    end if;
    exit when v_round = 2 or handed > 0 and made[1].alone;
    continue when not v_complete;
    c := posthaste.cursor_of(v_reader, live);
    v_sifts := v_filter is not null
      or exists (select from posthaste.cancelled x where x.subscriber = v_subscriber and x.xid >= coalesce(pg_snapshot_xmin(c.s0), '0'));
    -- Of a fair queue the log is passed on, whatever was found, so that keys take
    -- turns.
    while handed < p_max or q.fair loop
      d := posthaste.pass_log(q, c, v_busy, p_max - handed, least(4096, case when q.fair and handed = p_max then 1024 when q.fair then 4096 else 4 * (p_max - handed) + 64 end),
        not (v_sifts or q.key_concurrency is not null or q.fair or q.key_rate is not null)
          and not exists (select from posthaste.keys z where z.subscriber = v_subscriber and z.lane = p_lane and z.lane >= 0),
        v_sifts, v_filter, p_holder, p_number, p_until, p_single, s, t, live);
      c := d.c;
      v_busy := d.busy;
      v_more := v_more || d.again;
      v_counts := v_counts || d.counts;
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
      next_due := v_now;
    end if;
    v_keys := v_keys || array(select distinct x from unnest(v_more) x where x not in (select y from unnest(v_keys) y));
  end loop;
  -- Who came up and had no turn yet, or was found in the log.
  if cardinality(v_came) > 0 or cardinality(v_more) > 0 then
    select array_agg(x.key order by x.i) as keys, array_agg(x.n order by x.i) as counts into d
      from (select u.key, min(u.i) as i, sum(u.n)::bigint as n
              from (select x.key, x.i, 0 as n from unnest(v_came) with ordinality x (key, i)
                    union all
                    select x.key, cardinality(v_came) + x.i, x.n from unnest(v_more, v_counts) with ordinality x (key, n, i)) u
             group by u.key) x
     where q.fair and x.n > 0 or x.key in (select y from unnest(v_keys) y);
    if d.keys is not null then
      v_turn := posthaste.line_up(v_subscriber, d.keys, d.counts, v_turn);
      v_wrote := true;
    end if;
  end if;
  if q.fair and v_rest and not c.ended then
    d := posthaste.read_ahead(q, c, a, v_turn, v_filter, s, live);
    v_wrote := v_wrote or d.turn > v_turn;
    if d.turn > v_turn and handed = 0 then
      next_due := v_now;
    end if;
    v_turn := d.turn;
  elsif q.fair and c.ended and a.reading is not null then
    insert into posthaste.ahead (subscriber, lane, id, base0, base1, s0, s1, last_xid, last_pos, parked, complete)
    values (v_subscriber, p_lane, a.id + 1, c.s0, c.s1, c.s0, c.s1, '0', 0, 0, true);
  end if;
  w.turns := array[w.turns[1], w.turns[2], v_turn];
  if handed = 0 and (not v_complete or not wants_idle and (cardinality(v_keys) > 0 or v_line)) then
    next_due := v_now;
  end if;
  if handed = 0 and v_busy <> '{}' and exists (select from posthaste.keys z where z.subscriber = v_subscriber and z.lane = p_lane and z.waits) then
    -- Whoever settles wakes the sleepers if it sees that a key waits; it may not.
    next_due := least(next_due, v_now + interval '250 milliseconds');
  end if;
  if v_back and handed = 0 then
    next_due := least(next_due, posthaste.next_token(v_subscriber, p_lane, v_now));
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
