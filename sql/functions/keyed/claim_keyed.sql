-- posthaste.claim_keyed: hands out the next messages of one lane of a keyed queue. First it
-- applies the lane's events, then it releases parked messages that may start, then it reads
-- the log.
-- Arguments: the queue, subscription, lane; the maximum number; the holder and its number, or
-- null for a lease; the end of the lease; single: each delivery is settled by itself; alone: a
-- message that must run alone may be handed out; wait: whether to wait for the lane.
-- Returns: handed, or -1 if the lane is busy or belongs to another holder; made, its claims;
-- live, the slots that it read; wants_idle; next_due, if nothing was handed out; other: the
-- holder of the lane's open claims (0: receivers), if it is another one; expired, the number of
-- messages that expired.
-- A lane of an ordered queue has one holder at a time: another may claim when none of the
-- holder's claims there is open. Receivers count as one holder, and get one unsettled message
-- of a key.
-- In a fair queue it looks for other keys beyond the claim.
-- Keys that may have something to hand out are in a line: a claim takes the first ones, and
-- writes nothing for the others, however many there are.
-- Locks: the lane's readers, ascending. Inserts: claims, leases, parked, settlements,
-- outcomes, entries_other, words, cancelled, ahead, ahead_keys. Updates: keys, ahead_keys.
create or replace function posthaste.claim_keyed(q posthaste.queue_settings, p_subscription int, p_lane int, p_max int,
  p_holder bigint, p_number bigint, p_until timestamptz, p_single boolean, p_alone boolean, p_wait boolean,
  out handed int, out made posthaste.claims[], out live posthaste.live, out wants_idle boolean, out next_due timestamptz, out other bigint, out expired int)
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
  v_back boolean; -- the clock was set back to before the time of events
  v_renewed boolean := false;
  v_cursor posthaste.claims;
  v_log posthaste.claims;
  v_open record;
  v_events record;
  v_found record;
  v_keys text[];
  v_came text[] := '{}';
  v_more text[] := '{}';
  v_counts bigint[] := '{}';
  v_turn bigint;
  v_line boolean;
  v_waits boolean;
  v_most int := p_max + 16; -- some of the keys in line may have nothing
  v_ahead posthaste.ahead;
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
  expired := 0;
  wants_idle := false;
  if q.ordered and p_holder is null then
    q.key_concurrency := 1; -- also for let_go and pass_log
  end if;
  if not posthaste.lock_reader(v_reader, p_wait) or not posthaste.lock_reader(v_reader + 1, p_wait) then
    return;
  end if;
  -- Read after the lane is locked: messages parked for a subscription that was dropped
  -- meanwhile would never be removed.
  select x.filter, x.dropped_at is not null into v_filter, v_gone from posthaste.subscriptions x where x.queue_id = q.id and x.number = p_subscription;
  if v_gone then
    return;
  end if;
  s := posthaste.snapshot_now();
  t := clock_timestamp();
  -- Look ahead first: otherwise a claim parks at most one slice.
  if q.fair then
    select * into v_ahead from posthaste.ahead z where z.subscriber = v_subscriber and z.lane = p_lane order by z.subscriber desc, z.lane desc, z.id desc limit 1;
  end if;
  v_stop := case when coalesce(v_ahead.complete, true) then t + interval '50 milliseconds' else t end;
  live := posthaste.live_slots();
  v_cursor := posthaste.cursor_of(v_reader + 1, live);
  v_now := t;
  t := greatest(t, v_cursor.t1);
  v_back := q.key_rate is not null and posthaste.token_time(t) < t;
  if q.key_rate is not null and v_cursor.at > v_now + interval '2 seconds' then
    -- Since the last claim. After this one it is known.
    perform posthaste.renew_tokens(q, v_subscriber, p_lane, v_now, t);
    v_renewed := true;
  end if;
  -- As of the snapshot: the events of deliveries that are not in flight any more became visible
  -- at the same moment, and are read below.
  v_open := posthaste.lane_open(coalesce(v_cursor.open, '{}'), p_holder, s);
  if q.ordered then
    -- Or it must be left to another worker that is alive and asked for it within the last 5 s.
    if v_open.other is not null or exists (
        select from posthaste.lane_wishes y
         where y.subscriber = v_subscriber and y.lane = p_lane and y.worker <> coalesce(p_holder, 0)
           and y.at > clock_timestamp() - interval '5 seconds'
           and (y.worker = 0 or exists (select from posthaste.registrations r where r.id = y.worker and r.lost_at is null and r.ended_at is null))) then
      other := coalesce(v_open.other, p_holder, 0);
      return;
    end if;
  end if;
  handed := 0;
  made := '{}';

  v_found := posthaste.due_idle(q.id, p_lane, v_cursor, t, live);
  next_due := v_found.next_due;
  v_keys := '{}';
  if not v_found.idle then
    v_events := posthaste.lane_events(q.id, p_subscription, p_lane, v_cursor, s, t, live);
    v_cursor := v_events.w;
    v_complete := v_events.complete;
    v_found := posthaste.lane_apply(v_subscriber, p_lane, v_events.events, v_events.xids, v_events.poss, v_cursor.sifted is not null);
    v_came := v_found.keys;
    v_cursor.sifted := v_cursor.sifted + v_found.sifted;
    v_wrote := cardinality(v_came) > 0 or v_events.walked > 64 or not v_events.complete;
  end if;
  v_wrote := v_wrote or v_renewed;
  select exists (select from posthaste.keys z where z.subscriber = v_subscriber and z.lane = p_lane and z.waits), posthaste.has_line(v_subscriber, p_lane, v_cursor.turns)
    into v_waits, v_line;
  if v_line then
    v_found := posthaste.line_of(v_subscriber, p_lane, v_cursor.turns, v_most);
    v_cursor.turns := v_found.turns;
    v_keys := v_found.keys;
    v_line := cardinality(v_keys) >= v_most;
  end if;
  if v_back then
    -- No event tells which keys have a token by it.
    v_came := v_came || array(
      select z.key from posthaste.keys z
       where z.subscriber = v_subscriber and z.lane = p_lane and z.lane >= 0 and z.wake_at <= v_now
         and z.blocked and z.paused_at is null and z.stopped_by is null and z.key not in (select x from unnest(v_came) x)
       order by z.wake_at limit v_most);
  end if;
  v_cursor.turns := coalesce(v_cursor.turns, array[0, 0, 0]);
  v_turn := v_cursor.turns[3];
  if q.key_concurrency is not null or v_waits or cardinality(v_keys) > 0 or cardinality(v_came) > 0 then
    v_busy := posthaste.lane_busy(v_open.open, s);
  end if;
  -- Keys that wait for a run to end, if one has ended since the last claim.
  if v_busy is not null and v_cursor.busy is not null then
    v_came := v_came || array(
      select z.key
        from (select x.hash, count(*) as n from unnest(v_cursor.busy) x (hash) group by 1) b
        left join (select x.hash, count(*) as n from unnest(v_busy) x (hash) group by 1) y on y.hash = b.hash
       cross join lateral (select z.key from posthaste.keys z where z.subscriber = v_subscriber and z.lane = p_lane and z.hash = b.hash and z.waits offset 0) z
       where b.n > coalesce(y.n, 0) and z.key not in (select x from unnest(v_came) x));
  end if;
  v_keys := v_keys || array(select x from unnest(v_came) x where x not in (select y from unnest(v_keys) y));

  -- While both have messages, each gets about half of a claim; of claims of one message, every
  -- other claim.
  v_first := case when p_max > 1 then (p_max + 1) / 2 when random() < 0.5 then 1 else 0 end;
  for v_round in 1..2 loop
    exit when handed = p_max or handed > 0 and made[cardinality(made)].alone;
    -- Not while there are events to read: an earlier message of a key may have come back.
    if v_complete and cardinality(v_keys) > 0 and (v_round = 2 or v_first > 0) then
      v_found := posthaste.let_go(q, v_reader, 2 * v_cursor.seq + v_round, v_keys, v_busy, v_turn, case v_round when 1 then v_first else p_max - handed end, handed > 0,
        p_holder, p_number, p_until, p_single, p_alone, t, live);
      v_keys := v_found.keys;
      v_busy := v_found.busy;
      v_turn := v_found.turn;
      wants_idle := wants_idle or v_found.wants_idle;
      v_wrote := true;
      if (v_found.made).places > 0 then
        made := made || v_found.made;
        handed := handed + (v_found.made).places - coalesce(bit_count((v_found.made).expired), 0);
        expired := expired + coalesce(bit_count((v_found.made).expired), 0);
        v_let_go := v_let_go + (v_found.made).places;
      end if;
    end if;
    exit when v_round = 2 or handed > 0 and made[cardinality(made)].alone;
    continue when not v_complete;
    v_log := posthaste.cursor_of(v_reader, live);
    v_sifts := v_filter is not null
      or exists (select from posthaste.cancelled x where x.subscriber = v_subscriber and x.xid >= coalesce(pg_snapshot_xmin(v_log.s0), '0'));
    -- A fair queue always reads on in the log, so that keys take turns.
    while handed < p_max or q.fair loop
      v_found := posthaste.pass_log(q, v_log, v_busy, p_max - handed, least(4096, case when q.fair and handed = p_max then 1024 when q.fair then 4096 else 4 * (p_max - handed) + 64 end),
        not (v_sifts or q.key_concurrency is not null or q.fair or q.key_rate is not null)
          and not exists (select from posthaste.keys z where z.subscriber = v_subscriber and z.lane = p_lane and z.lane >= 0),
        v_sifts, v_filter, p_holder, p_number, p_until, p_single, s, t, live);
      v_log := v_found.c;
      v_busy := v_found.busy;
      v_more := v_more || v_found.again;
      v_counts := v_counts || v_found.counts;
      if (v_found.made).places > 0 then
        made := made || v_found.made;
        handed := handed + (v_found.made).places - coalesce(bit_count((v_found.made).withheld), 0) - coalesce(bit_count((v_found.made).expired), 0);
        expired := expired + coalesce(bit_count((v_found.made).expired), 0);
        v_wrote := true;
      end if;
      v_rest := not v_found.drained;
      exit when v_found.drained or clock_timestamp() > v_stop;
    end loop;
    -- There was no time for the rest of the log.
    if handed = 0 and v_rest then
      next_due := v_now;
    end if;
    v_keys := v_keys || array(select distinct x from unnest(v_more) x where x not in (select y from unnest(v_keys) y));
  end loop;
  -- Keys that came up and had no turn yet, or were found in the log.
  if cardinality(v_came) > 0 or cardinality(v_more) > 0 then
    select array_agg(x.key order by x.i) as keys, array_agg(x.n order by x.i) as counts into v_found
      from (select u.key, min(u.i) as i, sum(u.n)::bigint as n
              from (select x.key, x.i, 0 as n from unnest(v_came) with ordinality x (key, i)
                    union all
                    select x.key, cardinality(v_came) + x.i, x.n from unnest(v_more, v_counts) with ordinality x (key, n, i)) u
             group by u.key) x
     where q.fair and x.n > 0 or x.key in (select y from unnest(v_keys) y);
    if v_found.keys is not null then
      v_turn := posthaste.line_up(v_subscriber, v_found.keys, v_found.counts, v_turn);
      v_wrote := true;
    end if;
  end if;
  if q.fair and v_rest and not v_log.ended then
    v_found := posthaste.read_ahead(q, v_log, v_ahead, v_turn, v_filter, s, live);
    v_wrote := v_wrote or v_found.turn > v_turn;
    if v_found.turn > v_turn and handed = 0 then
      next_due := v_now;
    end if;
    v_turn := v_found.turn;
  elsif q.fair and v_log.ended and v_ahead.reading is not null then
    insert into posthaste.ahead (subscriber, lane, id, base0, base1, s0, s1, last_xid, last_pos, parked, complete)
    values (v_subscriber, p_lane, v_ahead.id + 1, v_log.s0, v_log.s1, v_log.s0, v_log.s1, '0', 0, 0, true);
  end if;
  v_cursor.turns := array[v_cursor.turns[1], v_cursor.turns[2], v_turn];
  if handed = 0 and (expired > 0 or not v_complete or not wants_idle and (cardinality(v_keys) > 0 or v_line)) then
    next_due := v_now;
  end if;
  if handed = 0 and v_busy <> '{}' and exists (select from posthaste.keys z where z.subscriber = v_subscriber and z.lane = p_lane and z.waits) then
    -- A settle notifies if it sees that a key waits; it may not see it.
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
  v_cursor := posthaste.without_places(v_cursor);
  v_cursor.total := v_cursor.total + v_let_go;
  v_cursor.open := v_open.open || array(select x.id from unnest(made) x);
  v_cursor.busy := v_busy;
  v_cursor := posthaste.put_claim(v_cursor, null, null, null, false);
end $$;
