-- posthaste.holds_slot: whether a claim is open and lies in a slot or holds one
-- of its entries.
create or replace function posthaste.holds_slot(c posthaste.claims, p_slot int)
returns boolean language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  return posthaste.claim_open(c) and (c.slot = p_slot or exists (select from posthaste.deliveries_of(c) d where ((d.pos >> 22) & 15) = p_slot));
end $$;
