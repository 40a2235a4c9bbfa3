-- posthaste.extend: moves the end of received deliveries' leases to lease from
-- now. Per delivery: the others of the same receive keep theirs.
-- Options: strict. Returns: per id whether it is still the caller's.
-- Errors: PH400, also unless READ COMMITTED; PH409 when strict.
-- Locks: the claims' rows, ascending, shared with rescue: rows take no place in the
-- server's table of locks, which is all programs', however many ids there are.
-- Inserts: leases. Reads: claims, settlements.
create or replace function posthaste.extend(delivery_ids bigint[], lease interval, options jsonb default '{}')
returns table (delivery_id bigint, settled boolean)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp set max_parallel_workers_per_gather = 0 set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
#variable_conflict use_column
declare
  v_id bigint;
  c posthaste.claims;
begin
  perform posthaste.check_options(extend.options, array['strict'], '{}');
  if extend.lease is null or extend.lease <= '0' or extend.lease > '12 hours' then
    raise exception using errcode = 'PH400', column = 'lease',
      message = format('lease must be above zero and at most 12 hours, and is %s', coalesce(extend.lease::text, 'null'));
  end if;
  -- An older snapshot does not see who rescued it.
  perform posthaste.snapshot_now();
  perform posthaste.check_singles(extend.delivery_ids);
  for v_id in select distinct x from unnest(extend.delivery_ids) x order by x loop
    c := null;
    select k.* into c from posthaste.claims k where k.slot = (v_id >> 34) & 15 and k.id = v_id >> 12 for no key update;
    delivery_id := v_id;
    settled := c.id is not null and c.holder is null and v_id & 4095 < c.places
      and not exists (select from posthaste.settlements s where s.slot = c.slot and s.claim = c.id and s.part = v_id & 4095);
    if settled then
      insert into posthaste.leases (slot, claim, place, subscriber, until)
      values (c.slot, c.id, v_id & 4095, c.reader >> 10, clock_timestamp() + extend.lease);
    elsif posthaste.option_boolean(extend.options, 'strict', false) then
      raise exception using errcode = 'PH409', message = format('delivery %s is no longer the caller''s', v_id);
    end if;
    return next;
  end loop;
end $$;
