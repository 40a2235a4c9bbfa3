-- posthaste.claim: hands out messages to a worker. It waits only for other claims of the same
-- reader. A small claim returns the deliveries itself, because a second statement and a second
-- transaction would cost more than reading them; posthaste.fetch reads those of a large claim
-- afterwards, outside the readers' locks.
-- Arguments: worker; the worker's own ascending number of this request; queue, subscription;
-- the maximum number (1 to 4096); single: each delivery is settled by itself; idle: nothing
-- else runs in the process; due: look at the due track in any case, and not only if nothing is
-- fresh; again: the number may have been used before, by a request whose reply was lost, and
-- then its claim is returned; rows: the maximum number of deliveries to return, which prolongs
-- the locks of the readers.
-- Returns: handed, wants_idle (a message waits that must run alone), next_due (seconds until
-- the next one becomes due, if nothing was handed out), timeout (seconds) and rules, in each
-- row; and a delivery in the rows that have a delivery_id. rules is a sum: 1, messages of a key
-- are in order; 2, deliveries count against a limit, so a worker should ask for no more than it
-- can start at once; 4, nothing was handed out because the queue's own limits are reached, and
-- new messages before next_due change nothing; 8, the queue has a concurrency, so a settle may
-- free a place. The first row has the options of the queue's kinds, as posthaste.attempt_options
-- reads them: their timeouts are those of deliveries. For an at-most-once queue (the column at_most_once) it returns all rows, and
-- only once: the claim is settled at its creation, its deliveries cannot be read by the number,
-- and a number that is used again is a new claim. A paused queue has nothing. Of the messages
-- that were set aside it hands out those of the kinds that the worker handles. It sets messages of
-- paused kinds aside.
-- Errors: PH410 if the worker was declared lost; PH404; PH400; PH503.
-- Locks: the worker's key, shared; the number's key; the readers.
create or replace function posthaste.claim(p_worker bigint, p_number bigint, p_queue text, p_subscription text, p_max int,
  p_single boolean default false, p_idle boolean default false, p_due boolean default true, p_again boolean default true, p_rows int default 0)
returns table (handed int, wants_idle boolean, next_due double precision, timeout double precision,
  delivery_id bigint, message_id bigint, attempt smallint, key text, kind text, headers jsonb, payload bytea, content_type text, reference text,
  created_at timestamptz, due_at timestamptz, story jsonb, alone boolean, at_most_once boolean, rules smallint, trace text, kind_options jsonb)
language plpgsql volatile security definer rows 100
set search_path = pg_catalog, pg_temp set max_parallel_workers_per_gather = 0 set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off as $$
#variable_conflict use_column
declare
  v_open bigint;
  v_queue int;
  v_subscription int;
  v_lanes int;
  v_width int;
  v_first int;
  v_order int[]; -- its lanes in the order in which it looks at them, if messages were set aside
  v_lane record;
  v_made posthaste.claims[];
  v_ruled boolean;
  v_live posthaste.live;
  v_due timestamptz;
  v_max_age interval;
  v_paused text[];
  v_expired int := 0;
  v_stop timestamptz := clock_timestamp() + interval '50 milliseconds';
begin
  if p_max not between 1 and 4096 or p_max is null then
    raise exception using errcode = 'PH400', column = 'max', message = format('max must be 1 to 4096, got %s', p_max);
  end if;
  if p_worker is null or p_number is null then
    raise exception using errcode = 'PH400', column = 'number', message = 'worker and number must not be null';
  end if;
  if coalesce(current_setting('posthaste.identity_checked', true), '') <> 'yes' then
    perform posthaste.check_identity(null, p_worker);
  end if;
  -- A transaction that declares the worker lost takes this key exclusively, so that no later
  -- claim of the worker can commit.
  perform pg_advisory_xact_lock_shared(posthaste.lock_key(5, p_worker));
  select r.oldest_open, q.id, s.number, case when q.paused_at is null then q.width * case when q.prioritized then 4 else 1 end else 0 end, q.width, extract(epoch from q.timeout), q.mode = 'at_most_once', (q.keyed or q.limited) and q.paused_at is null,
         case when q.ordered then 1 else 0 end + case when q.limited or q.key_concurrency is not null or q.key_rate is not null then 2 else 0 end
         + case when q.concurrency is not null then 8 else 0 end, q.max_age,
         case when q.kinds_aside is not null and q.paused_at is null then posthaste.lanes_for(q.width, q.prioritized, q.kind_lanes, q.kinds_aside, q.kinds_paused, r.kinds -> q.name -> s.name, (random() * 1000)::bigint) end, q.kind_options, q.kinds_paused
    into v_open, v_queue, v_subscription, v_lanes, v_width, timeout, at_most_once, v_ruled, rules, v_max_age, v_order, kind_options, v_paused
    from (select) one
    left join posthaste.registrations r on r.id = p_worker and r.lost_at is null and r.ended_at is null
    left join posthaste.queue_settings q on q.name = p_queue and q.dropped_at is null
    left join posthaste.subscriptions s on s.queue_id = q.id and s.name = coalesce(nullif(p_subscription, ''), 'default') and s.dropped_at is null;
  if v_open is null then
    raise exception using errcode = 'PH410', message = format('worker %s is not registered any more', p_worker),
      hint = 'register again; other workers get the messages that it held';
  end if;
  if p_number < v_open then
    raise exception using errcode = 'PH400', column = 'number', message = format('number %s was used before', p_number);
  end if;
  if v_subscription is null then
    perform posthaste.find_subscription(p_queue, p_subscription); -- raises an error if it does not exist
  end if;
  handed := 0;
  wants_idle := false;
  -- The first request of this number may still be running behind a lost connection.
  perform pg_advisory_xact_lock(posthaste.lock_key(8, p_worker * 1000003 + p_number));
  if p_again then
    v_live := posthaste.live_slots();
    -- Both between and order by: otherwise the choice of the index is left to chance.
    select coalesce(sum(k.places), 0) into handed from (
      select c.places - coalesce(bit_count(c.withheld), 0) - coalesce(bit_count(c.expired), 0) as places from posthaste.claims c
       where c.holder = p_worker and c.number between p_number and p_number
         and posthaste.in_slots(c.slot, v_live.a, v_live.b, v_live.c, v_live.d, v_live.e, v_live.f)
       order by c.number) k;
    if handed > 0 then
      -- This is its result, even if there is room for more.
      v_lanes := 0;
      v_order := null;
    end if;
  end if;
  -- The settle's flush covers the claim's: deliveries that are not settled when the database
  -- crashes are redelivered.
  if not at_most_once then
    perform set_config('synchronous_commit', case when current_setting('posthaste.must_flush', true) = 'yes' then current_setting('synchronous_commit') else 'off' end, true);
  else
    perform posthaste.must_flush();
  end if;
  if v_ruled and handed = 0 then
    v_lane := posthaste.claim_ruled(v_queue, v_subscription, p_max, p_worker, case when not at_most_once then p_number end, null,
      p_single and not at_most_once, p_idle, p_due, at_most_once, v_order);
    handed := v_lane.handed;
    wants_idle := v_lane.wants_idle;
    v_due := v_lane.next_due;
    v_made := v_lane.made;
    v_live := v_lane.live;
    v_lanes := 0;
    v_order := null;
    rules := rules + case when v_lane.limited then 4 else 0 end;
  end if;
  v_first := posthaste.first_priority(v_lanes > v_width);
  for v_round in 0..coalesce(cardinality(v_order), v_lanes) - 1 loop
    -- A claim is filled from several lanes only if lanes are priorities or kinds.
    exit when handed > 0 and (v_lanes = v_width and v_order is null or handed >= p_max or v_made[cardinality(v_made)].alone);
    -- The locks of its lanes are held until it ends.
    if v_expired > 0 and clock_timestamp() > v_stop then
      v_due := clock_timestamp();
      exit;
    end if;
    -- Later lanes are only tried and never waited for, because they are not taken in ascending
    -- order.
    v_lane := posthaste.claim_lane(v_queue, v_subscription, coalesce(v_order[v_round + 1], posthaste.lane_of_round(v_round, v_width, v_first, p_number)), p_max - handed,
      p_worker, case when not at_most_once then p_number end, null, p_single and not at_most_once, p_idle and handed = 0, p_due, v_round = 0, at_most_once, null, v_max_age, v_stop, v_paused);
    v_expired := v_expired + v_lane.expired;
    wants_idle := wants_idle or v_lane.wants_idle;
    v_due := least(v_due, v_lane.next_due);
    if v_lane.handed > 0 then
      handed := handed + v_lane.handed;
      v_made := v_made || v_lane.made;
      v_live := v_lane.live;
    end if;
  end loop;
  next_due := case when v_due is not null then greatest(0, extract(epoch from v_due - clock_timestamp())) end;
  if handed = 1 and p_rows > 0 and v_made[1].part = 0 and v_made[1].places = 1 and cardinality(v_made) = 1 then
    -- One fresh entry, which the claim locates: half as expensive as by its window.
    return query
      select handed, wants_idle, next_due, timeout, v_made[1].id * 4096, coalesce(e.message_id, e.pos), e.attempt, e.key, e.kind, e.headers,
             e.payload, e.content_type, e.reference, e.created_at, e.due_at, e.story, false, at_most_once, rules, e.trace, kind_options
        from posthaste.entries e
       where e.queue_id = v_queue and e.lane = (v_made[1].reader >> 1) & 511 and e.plain
         and (e.pos >> 22) & 15 = (v_made[1].first_pos >> 22) & 15 and e.xid = v_made[1].first_xid and e.pos = v_made[1].first_pos;
  elsif handed > 0 and (handed <= p_rows or at_most_once) then
    return query
      select handed, wants_idle, next_due, timeout, f.numbered_from + f.ordinality, f.message_id, f.attempt, f.key, f.kind, f.headers,
             f.payload, f.content_type, f.reference, f.created_at, f.due_at, f.story, f.alone, at_most_once, rules, f.trace, case when f.ordinality = 1 then kind_options end
        from posthaste.fetch(p_worker, p_number, v_made, v_live) with ordinality f;
  else
    return next;
  end if;
end $$;
