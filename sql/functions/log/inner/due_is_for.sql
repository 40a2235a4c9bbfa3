-- posthaste.due_is_for: posthaste.is_for of a due entry that is for all subscriptions. It
-- reads the entry's kind and headers only if there is a filter.
-- Arguments: the subscription; the entry's columns. Reads: entries.
create or replace function posthaste.due_is_for(s posthaste.subscriptions, p_lane int, p_xid xid8, p_pos bigint, p_due timestamptz)
returns boolean language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off as $$
declare
  v_kind text;
  v_headers jsonb;
begin
  if s.filter is not null then
    select e.kind, e.headers into v_kind, v_headers from posthaste.entries e
     where e.queue_id = s.queue_id and e.lane = p_lane and e.due_at is not null
       and e.due_at = p_due and e.pos = p_pos and ((e.pos >> 22) & 15) = (p_pos >> 22) & 15
     order by e.due_at, e.pos limit 1;
  end if;
  return posthaste.is_for(s, null, p_xid, p_due, v_kind, v_headers);
end $$;
