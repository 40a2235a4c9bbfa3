-- posthaste.claim_open: whether a claim has deliveries that are not settled. Deliveries of a
-- dropped subscription, and so of a dropped queue, count as settled.
-- Reads: settlements, subscriptions.
create or replace function posthaste.claim_open(c posthaste.claims)
returns boolean language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_settled bigint;
begin
  if c.id is null or c.places = 0 then
    return false;
  elsif c.single then
    select count(*) into v_settled from posthaste.settlements s where s.slot = c.slot and s.claim = c.id;
  else
    select bit_count(s.bits) into v_settled from posthaste.settlements s
     where s.slot = c.slot and s.claim = c.id and s.part = 0
     order by s.slot, s.claim, s.part, s.number desc limit 1;
  end if;
  return coalesce(v_settled, 0) < c.places
     and exists (select from posthaste.subscriptions u where u.queue_id = c.reader >> 20 and u.number = (c.reader >> 10) & 1023 and u.dropped_at is null);
end $$;
