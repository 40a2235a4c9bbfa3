-- posthaste.rescue_apart: rescues parts of a claim that failed repeatedly as a whole, so that
-- one message that cannot be read does not hold back the others: halves, and halves of those
-- that fail. It starts at a random place, and starts no part after 500 ms.
-- Arguments: the claim, its places. Called under the claim's lock.
-- Returns: the number of lost deliveries; -1 if there are none. Updates: held_claims.
create or replace function posthaste.rescue_apart(c posthaste.claims, p_places int[])
returns int language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_none bit varying := repeat('0', c.places)::bit varying;
  v_stop timestamptz := clock_timestamp() + interval '500 milliseconds';
  v_turn int := floor(random() * cardinality(p_places));
  v_from int[] := array[1, v_turn + 1]; -- a stack of ranges
  v_to int[] := array[v_turn, cardinality(p_places)];
  v_lo int;
  v_hi int;
  v_part int[];
  v_wanted bit varying;
  v_fresh bit varying;
  v_place int;
  v_lost int := 0;
  v_error text;
begin
  while cardinality(v_from) > 0 and clock_timestamp() < v_stop loop
    v_lo := v_from[cardinality(v_from)];
    v_hi := v_to[cardinality(v_to)];
    v_from := v_from[:cardinality(v_from) - 1];
    v_to := v_to[:cardinality(v_to) - 1];
    continue when v_lo > v_hi;
    v_wanted := v_none;
    foreach v_place in array p_places[v_lo:v_hi] loop
      v_wanted := set_bit(v_wanted, v_place, 1);
    end loop;
    begin
      perform posthaste.close_notes(c, v_wanted);
      v_fresh := posthaste.settle_claim(c, v_wanted, v_none, null);
      v_part := array(select o from unnest(p_places[v_lo:v_hi]) o where get_bit(v_fresh, o) = 1 order by o);
      if cardinality(v_part) > 0 then
        perform posthaste.finish(c, v_part, array_fill('lost'::text, array[cardinality(v_part)]), array_fill('it was not settled in time'::text, array[cardinality(v_part)]));
        v_lost := v_lost + cardinality(v_part);
      end if;
    exception when others then
      v_error := sqlerrm;
      exit when sqlstate = 'PH409'; -- rows are gone: no part of it can be read
      if v_hi > v_lo then
        v_from := v_from || array[v_lo, (v_lo + v_hi) / 2 + 1];
        v_to := v_to || array[(v_lo + v_hi) / 2, v_hi];
      end if;
    end;
  end loop;
  if v_error is not null then
    update posthaste.held_claims h set tries = h.tries + (v_lost = 0)::int, error = v_error where h.subscriber = c.reader >> 10 and h.claim = c.id;
  end if;
  return case when v_lost = 0 and v_error is not null then -1 else v_lost end;
end $$;
