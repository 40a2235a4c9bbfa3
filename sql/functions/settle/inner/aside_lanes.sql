-- posthaste.aside_lanes: gives kinds of a queue lanes of their own, at which only claims that may
-- hand them out look.
-- Arguments: queue id, kinds.
-- Returns: the queue's settings. A kind may have no lane: after a maximum of kinds, and if
-- another transaction is changing the queue, for which no settlement waits.
-- Locks: the queue's settings, if they are free. Updates: queue_settings.
create or replace function posthaste.aside_lanes(p_queue int, p_kinds text[])
returns posthaste.queue_settings language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  q posthaste.queue_settings;
  v_before posthaste.queue_settings;
  v_kind text;
begin
  select * into v_before from posthaste.queue_settings x where x.id = p_queue;
  if p_kinds <@ v_before.kinds_aside then
    return v_before;
  end if;
  begin
    select * into q from posthaste.queue_settings x where x.id = p_queue for no key update skip locked;
    if not found then
      return v_before;
    end if;
    foreach v_kind in array p_kinds loop
      -- A lane has a number below 256. Those above are for other entries of keyed queues.
      if v_kind <> all (q.kind_lanes) and 4 * q.width + cardinality(q.kind_lanes) < 256 then
        q.kind_lanes := q.kind_lanes || v_kind;
      end if;
      if v_kind = any (q.kind_lanes) and v_kind <> all (coalesce(q.kinds_aside, '{}')) then
        q.kinds_aside := q.kinds_aside || v_kind;
      end if;
    end loop;
    q.lanes := greatest(q.lanes, 4 * q.width + cardinality(q.kind_lanes));
    update posthaste.queue_settings x set kind_lanes = q.kind_lanes, kinds_aside = q.kinds_aside, lanes = q.lanes where x.id = p_queue;
  exception when serialization_failure then
    -- Changed since this transaction's snapshot.
    return v_before;
  end;
  return q;
end $$;
