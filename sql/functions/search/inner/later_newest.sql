-- posthaste.later_newest: the newest messages of given queues, below an id, that have a later
-- entry (a retry, a rescue, a replay).
-- Returns: their ids, descending. cut_at: it stopped at that id after 50,000 entries of all
-- queues: messages below are unknown; null otherwise. Reads: entries.
create or replace function posthaste.later_newest(p_queues int[], p_before bigint, p_max int, out message_ids bigint[], out cut_at bigint)
language plpgsql stable
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off as $$
declare
  l posthaste.live := posthaste.live_slots();
  v_entry record;
  v_walked int := 0;
begin
  message_ids := '{}';
  for v_entry in select x.message_id, x.queue_id from posthaste.entries x
            where x.message_id > 0 and x.message_id < coalesce(p_before, 9223372036854775807) -- 0 is that of events
              and posthaste.in_slots(posthaste.slot_of(x.pos), l.a, l.b, l.c, l.d, l.e, l.f)
            order by x.message_id desc loop
    v_walked := v_walked + 1;
    if v_walked > 50000 then
      cut_at := v_entry.message_id + 1;
      exit;
    end if;
    if v_entry.queue_id = any (p_queues) and v_entry.message_id is distinct from message_ids[cardinality(message_ids)] then
      message_ids := message_ids || v_entry.message_id::bigint;
      exit when cardinality(message_ids) = p_max;
    end if;
  end loop;
end $$;
