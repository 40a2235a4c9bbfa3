-- posthaste.claim_ruled: claims from a queue that is keyed or has limits of its own.
-- Arguments: queue and subscription; the maximum number; the holder and its number, or null for
-- a lease; the end of the lease; single, alone, due and closed as in posthaste.claim_lane; the
-- lanes in the order in which to look at them, or null for that of posthaste.lane_of_round.
-- Returns: as posthaste.claim_lane, over all lanes; limited: nothing was handed out because the
-- queue's own limits are reached, until next_due or until deliveries are settled, which wakes
-- listening workers; new messages until then change nothing.
-- Limits hold for all processes together: the claims of a limited queue run one after the
-- other, and the newest row of limit_states has the current values. A message over a limit is
-- not handed out, so no lease runs and no attempt is counted while it waits.
-- Locks: a reader's key of the lane 511, which represents the limits; the lanes' readers.
-- Inserts: limit_states, settlements if the claims are closed, and those of claim_lane and
-- claim_keyed.
create or replace function posthaste.claim_ruled(p_queue int, p_subscription int, p_max int,
  p_holder bigint, p_number bigint, p_until timestamptz, p_single boolean, p_alone boolean, p_due boolean, p_closed boolean default false, p_order int[] default null,
  out handed int, out made posthaste.claims[], out live posthaste.live, out wants_idle boolean, out next_due timestamptz, out limited boolean)
language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off as $$
#variable_conflict use_variable
declare
  q posthaste.queue_settings;
  v_subscriber bigint := p_queue::bigint << 10 | p_subscription;
  v_limits posthaste.limit_states;
  v_open record;
  v_full boolean;
  v_back boolean;
  v_max int := p_max;
  t timestamptz;
  v_lane int;
  v record;
  v_claim posthaste.claims;
  v_begun timestamptz := clock_timestamp();
  v_start bigint := coalesce(p_number, (random() * 1000000)::bigint);
  v_refused bigint[] := '{}';
  v_lanes int[] := '{}';
  v_first int;
  v_count int;
  v_refund int := 0;
  v_expired int := 0;
  v_stop timestamptz := clock_timestamp() + interval '50 milliseconds';
begin
  handed := 0;
  made := '{}';
  wants_idle := false;
  limited := false;
  select * into q from posthaste.queue_settings z where z.id = p_queue;
  if q.limited then
    perform posthaste.lock_reader(posthaste.reader_key(p_queue, p_subscription, 511, 0), true);
    select * into v_limits from posthaste.limit_states z where z.subscriber = v_subscriber order by z.subscriber desc, z.id desc limit 1;
    t := clock_timestamp();
    v_back := coalesce(v_limits.at > t, false);
    if v_back then
      -- The clock was set back: tokens accrue from here on, and not only once it has caught up.
      v_limits.at := t;
      v_limits.full_since := case when v_limits.full_since is not null then t end;
    end if;
    v_limits.tokens := posthaste.key_tokens(v_limits.tokens, v_limits.at, q.rate, q.burst, t);
    if q.rate is not null and (q.kinds_aside is not null or q.keyed) then
      with back as (delete from posthaste.limit_refunds z where z.subscriber = v_subscriber returning z.tokens)
      select coalesce(sum(b.tokens), 0) into v_refund from back b;
      v_limits.tokens := least(q.burst, v_limits.tokens + v_refund);
    end if;
    v_open := posthaste.lane_open(case when q.concurrency is null then '{}' else coalesce(v_limits.open, '{}') end, p_holder, posthaste.snapshot_now());
    v_full := coalesce(v_open.unsettled >= q.concurrency, false);
    -- More tokens than a claim can use are treated as no shortage.
    v_max := least(v_max, floor(least(v_limits.tokens, v_max)), q.concurrency - v_open.unsettled);
    if v_back or v_refund > 0 or v_full <> (v_limits.full_since is not null) and (v_full or v_max < 1) then
      v_limits.full_since := case when v_full then t end;
      v_limits.id := coalesce(v_limits.id, 0) + 1;
      insert into posthaste.limit_states (subscriber, id, at, tokens, open, full_since)
      values (v_subscriber, v_limits.id, t, v_limits.tokens, v_open.open, v_limits.full_since);
    end if;
    if v_max < 1 then
      limited := true;
      -- A settle while the last place was being taken wakes no worker, so its effect is
      -- looked for, less often the longer it takes. Settles within 50 ms are waited for
      -- together, because that costs fewer claims.
      next_due := case when v_full then t + least(greatest(t - v_limits.full_since, interval '50 milliseconds'), interval '10 seconds')
                       else t + make_interval(secs => (greatest(1, least(q.burst / 2, q.rate / 20)) - v_limits.tokens) / q.rate) end;
      return;
    end if;
  end if;
  v_count := q.width * case when q.prioritized then 4 else 1 end;
  v_first := posthaste.first_priority(q.prioritized);
  for v_round in 0..coalesce(cardinality(p_order), v_count) - 1 loop
    v_lane := case when q.keyed then (v_start + v_round) % v_count else coalesce(p_order[v_round + 1], posthaste.lane_of_round(v_round, q.width, v_first, v_start)) end;
    if q.keyed then
      v := posthaste.claim_keyed(q, p_subscription, v_lane, v_max - handed, p_holder, p_number, p_until, p_single, p_alone and handed = 0, v_round = 0);
      if p_closed and v.handed > 0 then
        -- Released messages are handed out by a claim like all others and settled with it: of
        -- them only the delivery is known.
        foreach v_claim in array v.made loop
          perform posthaste.settle_claim(v_claim, repeat('1', v_claim.places)::bit varying, repeat('0', v_claim.places)::bit varying, null);
        end loop;
      end if;
      if v.other is not null then
        v_refused := v_refused || v.other;
        v_lanes := v_lanes || v_lane;
      end if;
    else
      v := posthaste.claim_lane(p_queue, p_subscription, v_lane, v_max - handed, p_holder, p_number, p_until, p_single, p_alone and handed = 0, p_due, v_round = 0,
        p_closed, case when q.concurrency is not null then '{}'::bigint[] end, q.max_age, v_stop, q.kinds_paused);
    end if;
    wants_idle := wants_idle or v.wants_idle;
    next_due := least(next_due, v.next_due);
    live := coalesce(v.live, live);
    v_expired := v_expired + v.expired;
    if v.handed > 0 then
      handed := handed + v.handed;
      made := made || v.made;
      exit when handed >= v_max or (v.made)[cardinality(v.made)].alone;
    end if;
    -- The locks of its lanes are held until it ends.
    if v_expired > 0 and clock_timestamp() > v_stop then
      next_due := clock_timestamp();
      exit;
    end if;
  end loop;
  if handed = 0 and q.key_rate is not null then
    -- The time of a key's next token is an event. The claim that parks for lack of a token wrote
    -- it after it looked for the next.
    live := posthaste.live_slots();
    select least(next_due, min(x.due_at)) into next_due
      from generate_series(0, q.lanes - 1) g
     cross join lateral (
       select e.due_at from posthaste.entries e
        where e.queue_id = q.id and e.lane = g and e.due_at is not null and e.due_at > v_begun
          and posthaste.in_slots((e.pos >> 22) & 15, live.a, live.b, live.c, live.d, live.e, live.f)
        order by e.due_at, e.pos limit 1) x;
  end if;
  if q.limited and (handed > 0 or v_limits.full_since is not null) then
    insert into posthaste.limit_states (subscriber, id, at, tokens, open, full_since)
    values (v_subscriber, coalesce(v_limits.id, 0) + 1, t, v_limits.tokens - handed,
            case when q.concurrency is null then '{}' else v_open.open || array(select x.id from unnest(made) x) end,
            case when v_open.unsettled + handed >= q.concurrency then t end);
  end if;
  -- Another worker has at least two lanes more: ask for one of them.
  if q.ordered and p_holder is not null and handed < v_max and cardinality(v_refused) > 0 then
    select x.lane into v_lane
      from (select u.holder, u.lane, count(*) over (partition by u.holder) as has from unnest(v_refused, v_lanes) u (holder, lane)) x
     where x.holder not in (0, p_holder) and x.has >= q.lanes - cardinality(v_refused) + 2
     order by x.has desc, random() limit 1;
    if found then
      insert into posthaste.lane_wishes as y (subscriber, lane, worker) values (v_subscriber, v_lane, p_holder)
      on conflict (subscriber, lane) do update set worker = excluded.worker, at = clock_timestamp()
        where y.worker = excluded.worker or y.at < clock_timestamp() - interval '5 seconds';
      next_due := least(next_due, clock_timestamp() + interval '100 milliseconds');
    end if;
  end if;
end $$;
