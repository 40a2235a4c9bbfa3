-- posthaste.handed_long_ago: the subscriptions of a message that have no state for it any more:
-- each may have handed it out long ago, by a claim that was reclaimed.
-- Arguments: the message's entry, which is for all subscriptions; those that have a state for it,
-- null to look them up. Returns: the numbers of the subscriptions.
create or replace function posthaste.handed_long_ago(h posthaste.head, p_told smallint[])
returns setof smallint language plpgsql stable
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
begin
  p_told := coalesce(p_told, array(select m.subscription from posthaste.message_states(array[h] || posthaste.other_heads(array[h.message_id]), false) m));
  return query
    select s.number from posthaste.subscriptions s
     where s.queue_id = h.queue_id and s.dropped_at is null and s.number <> all (p_told)
       and posthaste.is_for(s, null, h.xid, h.due_at, h.kind, h.headers)
       and (select z.pos from posthaste.cancelled z where z.pos = h.pos and z.subscriber = s.queue_id::bigint << 10 | s.number
             order by z.pos, z.subscriber limit 1) is null;
end $$;
