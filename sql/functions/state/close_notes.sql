-- posthaste.close_notes: lets no note follow for deliveries that are about to end otherwise than
-- done, and waits for those that are being recorded. Call it before posthaste.settle_claim, in
-- the same transaction: statements after it see all notes that were accepted.
-- Arguments: the claim; the places, as bits.
-- Returns: whether a delivery has notes.
-- Without notes it is one insert, which reads nothing: see posthaste.settle_claim. Ascending,
-- as all that settles. Inserts: notes.
create or replace function posthaste.close_notes(c posthaste.claims, p_ending bit varying)
returns boolean language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  v_rows int;
  v_place int;
  v record;
begin
  insert into posthaste.notes (slot, claim, place, number, last)
  select c.slot, c.id, g, 1, true from generate_series(0, c.places - 1) g where get_bit(p_ending, g) = 1 order by g
  on conflict do nothing;
  get diagnostics v_rows = row_count;
  if v_rows = bit_count(p_ending) then
    return false;
  end if;
  for v_place in select g from generate_series(0, c.places - 1) g where get_bit(p_ending, g) = 1 order by g loop
    loop
      select n.number, n.last into v from posthaste.notes n where n.slot = c.slot and n.claim = c.id and n.place = v_place
       order by n.slot, n.claim, n.place, n.number desc limit 1;
      exit when v.last; -- by this call, or it has ended
      insert into posthaste.notes (slot, claim, place, number, last) values (c.slot, c.id, v_place, v.number + 1, true)
      on conflict do nothing;
      exit when found;
    end loop;
  end loop;
  return true;
end $$;
