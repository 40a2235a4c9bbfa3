-- posthaste.finish_all: posthaste.finish of places that end alike and say nothing else.
-- Arguments: the claim, places, the outcome wanted, the error text.
create or replace function posthaste.finish_all(c posthaste.claims, p_places int[], p_outcome text, p_error text)
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  n int[] := array[cardinality(p_places)];
begin
  perform posthaste.finish(c, p_places, array_fill(p_outcome, n), array_fill(p_error, n), array_fill(null::double precision, n), array_fill(null::jsonb, n), array_fill(null::real, n));
end $$;
