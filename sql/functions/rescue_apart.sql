-- posthaste.rescue_apart: rescues a claim's places one by one, where all at once failed
-- again and again, so that one message that cannot be read keeps none of the others.
-- Arguments: the claim, its places. Called under the claim's lock.
-- Returns: how many were lost; -1 if none, and some could not be rescued.
create or replace function posthaste.rescue_apart(c posthaste.claims, p_places int[])
returns int language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_none bit varying := repeat('0', c.places)::bit varying;
  v_place int;
  v_lost int := 0;
  v_failed boolean := false;
begin
  foreach v_place in array p_places loop
    begin
      if get_bit(posthaste.settle_claim(c, set_bit(v_none, v_place, 1), v_none, null), v_place) = 1 then
        perform posthaste.finish(c, array[v_place], array['lost'], array['it was not settled in time'], array[null::double precision], array[null::jsonb], array[null::real]);
        v_lost := v_lost + 1;
      end if;
    exception when others then
      v_failed := true;
      update posthaste.held_claims h set tries = h.tries + 1, error = sqlerrm where h.subscriber = c.reader >> 10 and h.claim = c.id;
    end;
  end loop;
  return case when v_lost = 0 and v_failed then -1 else v_lost end;
end $$;
