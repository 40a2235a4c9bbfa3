-- posthaste.settle_expired: settles the expired places of a claim that was just written, each
-- with the outcome 'expired'. The caller sets those of paused kinds aside.
-- Arguments: the claim; closed: all its places are settled already, so only the outcomes are
-- missing; the paused kinds, or null.
-- Inserts: settlements, outcomes. Reads: entries.
create or replace function posthaste.settle_expired(c posthaste.claims, p_closed boolean, p_paused text[] default null)
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan as $$
begin
  if not p_closed then
    perform posthaste.settle_claim(c, c.expired, c.expired & ~c.expired, null);
  end if;
  insert into posthaste.outcomes (slot, claim, place, attempt, pos, message_id, reader, worker, outcome)
  select c.slot, c.id, d.place, d.attempt, d.pos, d.message_id, c.reader, c.holder, 'expired'
    from posthaste.deliveries_at(c, array(select g from generate_series(0, c.places - 1) g where get_bit(c.expired, g) = 1)) d
   where (d.kind = any (p_paused)) is not true;
end $$;
