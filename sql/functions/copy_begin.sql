-- posthaste.copy_begin: begins sending many messages to one queue by COPY, which
-- must follow in the same transaction: COPY posthaste.entries (pos, queue_id,
-- lane, due_at, content_type, key, kind, reference, headers, terms, trace, payload).
-- Arguments: queue, how many messages (1 to 100,000), the longest payload's
-- bytes, whether to ring, the highest priority among them. The client checks the
-- other limits.
-- Returns: what to write into each row: queue_id, the lane (its priority × step,
-- and any number below lanes), and as many positions. No lanes: this queue looks at
-- keys, and messages must be sent by posthaste.send_rows. Errors: PH404, PH413, PH400.
-- Locks: the queue's key, shared. Advances: positions. Updates: queue_settings,
-- where a priority is used first.
create or replace function posthaste.copy_begin(p_queue text, p_count int, p_longest int, p_wake boolean, p_priority int default 0,
  out queue_id int, out lanes int, out positions bigint[], out step int)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
  q posthaste.queue_settings;
begin
  if p_count is null or p_count not between 1 and 100000 then
    raise exception using errcode = 'PH400', column = 'count', message = 'count must be 1 to 100000';
  end if;
  perform pg_advisory_xact_lock_shared(posthaste.lock_key(7, hashtext(p_queue)));
  select * into q from posthaste.queue_settings x where x.name = p_queue and x.dropped_at is null;
  if q.id is null then
    raise exception using errcode = 'PH404', column = 'queue', message = format('queue %L does not exist', p_queue),
      hint = format('create it: select posthaste.create_queue(%L)', p_queue);
  end if;
  if p_longest > q.max_payload then
    raise exception using errcode = 'PH413', column = 'payload',
      message = format('payload of %s bytes is over the queue''s limit of %s (max_payload)', p_longest, q.max_payload);
  end if;
  -- In order by the function that takes arrays.
  if q.keyed then
    lanes := 0;
    positions := '{}';
    return;
  end if;
  if p_wake then
    perform posthaste.ring(q.id);
  end if;
  -- A transaction id first: a position may only be taken by a transaction that
  -- reclaiming can see.
  perform pg_current_xact_id();
  queue_id := q.id;
  lanes := q.width;
  step := case when q.lanes > q.width or coalesce(p_priority, 0) > 0 and posthaste.part_lanes(q.id) then q.width else 0 end;
  positions := array(select nextval('posthaste.positions') from generate_series(1, p_count));
end $$;
