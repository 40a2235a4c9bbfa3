-- posthaste.hold_message: the state of a message for each subscription. Until the transaction
-- ends it stays the same for those that have not handed it out.
-- Arguments: message id.
-- Returns: as posthaste.message_states; waits: it was not handed out; parked: the lane in
-- which it is parked, null if it is not.
-- Errors: PH404 if the message is unknown or its space was reclaimed; PH400 unless READ
-- COMMITTED, because otherwise the result would be older than the locks; PH503.
-- Locks: the lock of the queue's withdrawals, shared; the readers of its queue and lanes,
-- ascending.
create or replace function posthaste.hold_message(p_id bigint)
returns table (h posthaste.head, subscription smallint, name text, state text, waits boolean, parked smallint)
language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set max_parallel_workers_per_gather = 0 as $$
#variable_conflict use_column
declare
  v_heads posthaste.head[];
  v_lanes int[];
  v_now posthaste.head[];
  v_numbers smallint[];
  v_names text[];
  v_states text[];
  v_parked smallint[];
begin
  if p_id is null then
    raise exception using errcode = 'PH400', column = 'id', message = 'id must not be null';
  end if;
  perform posthaste.refuse_copy();
  perform posthaste.snapshot_now();
  v_heads := array(select e.head from posthaste.entries e
                    where ((e.pos >> 22) & 15) = (p_id >> 22) & 15 and e.pos = p_id and e.message_id is null)
          || posthaste.other_heads(array[p_id]);
  -- Without entries nothing is locked, and entries committed from here on must not be found
  -- below.
  if v_heads <> '{}' then
    loop
      v_lanes := array(select distinct (x).lane & 255 from unnest(v_heads) x order by 1);
      perform posthaste.hold_readers(v_heads);
      -- Read again, in a later statement: the previous holder of the lock may have handed it out,
      -- or appended it again elsewhere. All in one statement, because a settle, replay or discard
      -- holds none of these locks.
      select array_agg(m.h order by m.subscription), array_agg(m.subscription order by m.subscription), array_agg(m.subscription_name order by m.subscription),
             array_agg(m.state order by m.subscription), array_agg(p.lane order by m.subscription)
        into v_now, v_numbers, v_names, v_states, v_parked
        from posthaste.message_states(
               array(select e.head from posthaste.entries e
                      where ((e.pos >> 22) & 15) = (p_id >> 22) & 15 and e.pos = p_id and e.message_id is null)
               || posthaste.other_heads(array[p_id]), false) m
        left join posthaste.parked p on p.message_id = p_id and p.subscriber = (m.h).queue_id::bigint << 10 | m.subscription;
      v_heads := v_heads || v_now;
      -- An edit of its priority, or a worker that does not handle its kind, may have put it into
      -- another lane meanwhile.
      exit when (select bool_and((x).lane & 255 = any (v_lanes)) from unnest(v_heads) x) is not false;
    end loop;
    return query
      select v_now[n], v_numbers[n], v_names[n], v_states[n], v_states[n] in ('scheduled', 'ready', 'retrying'), v_parked[n]
        from generate_subscripts(v_now, 1) n order by n;
    if found then
      return;
    end if;
  end if;
  raise exception using errcode = 'PH404', column = 'id', message = format('message %s is unknown, or its space was reclaimed', p_id),
    hint = 'settled messages are kept as long as the ring has room, dead letters until they are replayed or discarded';
end $$;
