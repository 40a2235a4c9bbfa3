-- posthaste.claim: hands out messages to a worker. Does not block but for other
-- claims of the same reader. Where little was handed out it returns the rows at
-- once, for with small claims a second statement and a second transaction would
-- cost more than reading does; other rows are read by posthaste.fetch
-- afterwards, outside the readers' locks.
-- Arguments: worker, the worker's own ascending number of this request; queue,
-- subscription; how many (1 to 4096); single: each delivery is settled by
-- itself; idle: nothing else runs in the process; due: look at the due track in
-- any case, and not only where nothing is fresh; again: the number may have been
-- used before, by a try whose answer was lost, and then the answer is what it
-- has; rows: how many rows it may return, which is how much longer the readers
-- stay locked.
-- Returns: handed, wants_idle (a message waits that must run alone), next_due
-- (seconds until the next one falls due, where nothing was handed out), timeout
-- (seconds), in each row; and a delivery in those that have a delivery_id.
-- Errors: PH410 the worker was declared lost; PH404; PH400; PH503.
-- Locks: the worker's key, shared; the number's key; the readers.
create or replace function posthaste.claim(p_worker bigint, p_number bigint, p_queue text, p_subscription text, p_max int,
  p_single boolean default false, p_idle boolean default false, p_due boolean default true, p_again boolean default true, p_rows int default 0)
returns table (handed int, wants_idle boolean, next_due double precision, timeout double precision,
  delivery_id bigint, message_id bigint, attempt smallint, key text, kind text, headers jsonb, payload bytea, content_type text, reference text,
  created_at timestamptz, due_at timestamptz, story jsonb, alone boolean)
language plpgsql volatile security definer rows 100
set search_path = pg_catalog, pg_temp set max_parallel_workers_per_gather = 0 set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off as $$
#variable_conflict use_column
declare
  v_open bigint;
  v_queue int;
  v_subscription int;
  v_lanes int;
  v_lane record;
  v_made posthaste.claims[];
  v_live posthaste.live;
  v_due timestamptz;
begin
  if p_max not between 1 and 4096 or p_max is null then
    raise exception using errcode = 'PH400', column = 'max', message = format('max must be 1 to 4096, and is %s', p_max);
  end if;
  if coalesce(current_setting('posthaste.identity_checked', true), '') <> 'yes' then
    perform posthaste.check_identity();
  end if;
  -- Declaring a worker lost takes this key exclusively, so that no claim of it
  -- can commit afterwards.
  perform pg_advisory_xact_lock_shared(posthaste.lock_key(5, p_worker));
  select r.oldest_open, q.id, s.number, q.lanes, extract(epoch from q.timeout) into v_open, v_queue, v_subscription, v_lanes, timeout
    from (select) one
    left join posthaste.registrations r on r.id = p_worker and r.lost_at is null and r.ended_at is null
    left join posthaste.queue_settings q on q.name = p_queue and q.dropped_at is null
    left join posthaste.subscriptions s on s.queue_id = q.id and s.name = coalesce(nullif(p_subscription, ''), 'default') and s.dropped_at is null;
  if v_open is null then
    raise exception using errcode = 'PH410', message = format('worker %s is not registered any more', p_worker),
      hint = 'register anew; what it held is handed out elsewhere';
  end if;
  if p_number < v_open then
    raise exception using errcode = 'PH400', column = 'number', message = format('number %s was used before', p_number);
  end if;
  if v_subscription is null then
    perform posthaste.find_subscription(p_queue, p_subscription); -- says what there is not
  end if;
  handed := 0;
  wants_idle := false;
  -- The first try of this number may still be running behind a cut connection.
  perform pg_advisory_xact_lock(posthaste.lock_key(8, p_worker * 1000003 + p_number));
  if p_again then
    v_live := posthaste.live_slots();
    -- Between and ordered, or the choice of the index would be left to chance.
    select coalesce(sum(k.places), 0) into handed from (
      select c.places from posthaste.claims c
       where c.holder = p_worker and c.number between p_number and p_number
         and posthaste.in_slots(c.slot, v_live.a, v_live.b, v_live.c, v_live.d, v_live.e, v_live.f)
       order by c.number) k;
  end if;
  -- The settle's flush covers the claim's: what is handed out and not settled
  -- when the database crashes is handed out again.
  perform set_config('synchronous_commit', 'off', true);
  for v_round in 0..v_lanes - 1 loop
    exit when handed > 0;
    -- Later lanes are only tried, never waited for, for they are not taken in
    -- ascending order.
    v_lane := posthaste.claim_lane(v_queue, v_subscription, ((p_number + v_round) % v_lanes)::int, p_max,
      p_worker, p_number, null, p_single, p_idle, p_due, v_round = 0);
    handed := greatest(v_lane.handed, 0);
    wants_idle := wants_idle or v_lane.wants_idle;
    v_due := least(v_due, v_lane.next_due);
    v_made := v_lane.made;
    v_live := v_lane.live;
  end loop;
  next_due := case when v_due is not null then greatest(0, extract(epoch from v_due - clock_timestamp())) end;
  if handed = 1 and p_rows > 0 and v_made[1].part = 0 then
    -- One fresh entry, of which the claim says all: half as dear as by its window.
    return query
      select handed, wants_idle, next_due, timeout, v_made[1].id * 4096, coalesce(e.message_id, e.pos), e.attempt, e.key, e.kind, e.headers,
             e.payload, e.content_type, e.reference, e.created_at, e.due_at, e.story, false
        from posthaste.entries e
       where e.queue_id = v_queue and e.lane = (v_made[1].reader >> 1) & 511 and e.due_at is null and e.ord is null
         and (e.pos >> 22) & 15 = (v_made[1].first_pos >> 22) & 15 and e.xid = v_made[1].first_xid and e.pos = v_made[1].first_pos;
  elsif handed between 1 and p_rows then
    return query
      select handed, wants_idle, next_due, timeout, f.numbered_from + f.ordinality, f.message_id, f.attempt, f.key, f.kind, f.headers,
             f.payload, f.content_type, f.reference, f.created_at, f.due_at, f.story, f.alone
        from posthaste.fetch(p_worker, p_number, v_made, v_live) with ordinality f;
  else
    return next;
  end if;
end $$;
