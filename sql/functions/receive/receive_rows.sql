-- posthaste.receive_rows: hands out messages until a lease ends, for clients and for
-- posthaste.receive. It does not block. Each delivery is settled by itself (ack, fail, release)
-- and may be extended by itself.
-- Arguments: queue; the maximum number, 1 to 1000; the lease, above zero and at most 12 h, or
-- null for the queue's timeout; the subscription, null for default.
-- Returns: one row per message, with its payload as bytes.
-- First it rescues at most one expired claim of its subscription, so that crash recovery works
-- with SQL alone; the next call returns the rescued messages. Deliveries of an at-most-once
-- queue are settled at once: there is no lease, and nothing to acknowledge.
-- Call it in a short READ COMMITTED transaction of its own and commit before the work: until
-- then no other session receives from the lanes that it looked at. Of several lanes it takes
-- the first that has messages (lanes of priorities: as posthaste.claim does). It returns no rows
-- if other sessions read all remaining lanes, if the queue is paused, and after it walked over
-- 32,768 due messages that were handed out before or are for later or for other subscriptions,
-- or after it expired or set aside messages for 200 ms, or in a queue with limits or keys for less: the next
-- call continues there.
-- Until the transaction ends the setting posthaste.next_due has, if no row was returned, the
-- seconds until a message becomes due or a limit lets the next message through, if known (else
-- it is empty); posthaste.at_limit is yes if messages wait for a limit of the queue.
-- Errors: PH400, PH404, PH503. Locks: the readers of the lanes it looked at; it waits for one
-- only while it holds none.
create or replace function posthaste.receive_rows(p_queue text, p_max bigint, p_lease interval, p_subscription text)
returns table (delivery_id bigint, message_id bigint, attempt int, key text, kind text, headers jsonb, payload bytea,
  content_type text, created_at timestamptz, due_at timestamptz, reference text, story jsonb)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp set max_parallel_workers_per_gather = 0 set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off as $$
#variable_conflict use_column
declare
  v_sub record;
  v_lane record;
  v_lanes int;
  v_start int;
  v_first int;
  v_order int[]; -- its lanes in the order in which it looks at them, if messages were set aside
  v_lane_number int;
  v_handed int := 0;
  v_made posthaste.claims[] := '{}';
  v_held boolean := false;
  v_stretches int := 0;
  v_due timestamptz;
  v_limited boolean := false;
  v_claim posthaste.claims;
  v_ruled boolean;
  v_max_age interval;
  v_paused text[];
  v_expired int := 0;
  v_stop timestamptz := clock_timestamp() + interval '200 milliseconds';
begin
  if p_max is null or p_max not between 1 and 1000 then
    raise exception using errcode = 'PH400', column = 'max', message = format('max must be 1 to 1000, got %s', coalesce(p_max::text, 'null'));
  end if;
  if p_lease <= '0' or p_lease > '12 hours' then
    raise exception using errcode = 'PH400', column = 'lease',
      message = format('lease must be above zero and at most 12 hours, got %s', p_lease);
  end if;
  if coalesce(current_setting('posthaste.identity_checked', true), '') <> 'yes' then
    perform posthaste.check_identity();
  end if;
  v_sub := posthaste.find_subscription(p_queue, p_subscription);
  perform posthaste.rescue_leases(v_sub.queue_id::bigint << 10 | v_sub.number);
  p_lease := coalesce(p_lease, least(make_interval(secs => v_sub.timeout), '12 hours'));
  v_lanes := v_sub.lanes;
  if v_lanes = 0 then
    perform set_config('posthaste.next_due', '', true), set_config('posthaste.at_limit', '', true);
    return; -- paused
  end if;
  if v_sub.at_most_once then
    perform posthaste.must_flush();
  end if;
  select q.keyed or q.limited, q.max_age, case when q.kinds_aside is not null then posthaste.lanes_for(q.width, q.prioritized, q.kind_lanes, q.kinds_aside, q.kinds_paused, null, (random() * 1000)::bigint) end, q.kinds_paused
    into v_ruled, v_max_age, v_order, v_paused from posthaste.queue_settings q where q.id = v_sub.queue_id;
  if v_ruled then
    v_lane := posthaste.claim_ruled(v_sub.queue_id, v_sub.number, p_max::int, null, null,
      case when not v_sub.at_most_once then clock_timestamp() + p_lease end, not v_sub.at_most_once, true, true, v_sub.at_most_once, v_order);
    v_made := v_lane.made;
    v_handed := v_lane.handed;
    v_due := v_lane.next_due;
    v_limited := v_lane.limited;
    v_lanes := -1;
  else
    v_lanes := coalesce(cardinality(v_order), v_sub.lanes);
  end if;
  v_start := floor(random() * v_sub.width);
  v_first := posthaste.first_priority(v_sub.lanes > v_sub.width);
  -- Every lane that no session is reading. An empty one stays locked until the end of the
  -- transaction, so this waits for one only while it holds none: messages in busy lanes are
  -- being handed out by other sessions.
  <<lanes>>
  for v_round in 0..v_lanes loop
    if v_round = v_lanes then
      exit when v_held;
      v_lane_number := coalesce(v_order[1], posthaste.lane_of_round(0, v_sub.width, v_first, v_start));
    else
      v_lane_number := coalesce(v_order[v_round + 1], posthaste.lane_of_round(v_round, v_sub.width, v_first, v_start));
      continue when not posthaste.lock_reader(posthaste.reader_key(v_sub.queue_id, v_sub.number, v_lane_number, 0), false);
      v_held := true;
    end if;
    loop
      v_lane := posthaste.claim_lane(v_sub.queue_id, v_sub.number, v_lane_number, p_max::int - v_handed,
        null, null, case when not v_sub.at_most_once then clock_timestamp() + p_lease end, not v_sub.at_most_once, v_handed = 0, true,
        v_lanes = 1 or v_round = v_lanes, v_sub.at_most_once, null, v_max_age, v_stop, v_paused);
      v_expired := v_expired + v_lane.expired;
      if v_lane.handed > 0 then
        v_handed := v_handed + v_lane.handed;
        v_made := v_made || v_lane.made;
        -- A result is filled from several lanes only if lanes are priorities or kinds.
        exit lanes when v_lanes = v_sub.width and v_order is null or v_handed >= p_max or v_made[cardinality(v_made)].alone;
        exit;
      end if;
      v_due := least(v_due, v_lane.next_due);
      exit lanes when v_expired > 0 and clock_timestamp() > v_stop;
      -- It stopped on its way: a caller that sleeps after an empty result would sleep once for
      -- each such stretch.
      exit when (v_lane.handed = 0 and v_lane.next_due <= clock_timestamp()) is not true;
      v_stretches := v_stretches + 1;
      exit lanes when v_stretches = 8;
    end loop;
  end loop;
  perform set_config('posthaste.next_due', case when v_handed = 0 and v_due is not null then greatest(0, extract(epoch from v_due - clock_timestamp()))::text else '' end, true),
          set_config('posthaste.at_limit', case when v_limited then 'yes' else '' end, true);
  foreach v_claim in array v_made loop
    return query
      select v_claim.id * 4096 + d.place, d.message_id, d.attempt::int, d.key, d.kind, posthaste.all_headers(d.headers, d.trace), d.payload,
             coalesce(d.content_type, 'application/json'), d.created_at, d.due_at, d.reference, d.story
        from posthaste.deliveries_of(v_claim) d
       where coalesce(get_bit(v_claim.expired, d.place), 0) = 0;
  end loop;
end $$;
