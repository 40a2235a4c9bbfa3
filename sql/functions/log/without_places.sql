-- posthaste.without_places: a claim's row as a bare cursor, ready to be written again.
create or replace function posthaste.without_places(c posthaste.claims)
returns posthaste.claims language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
  c.places := 0;
  c.alone := false;
  c.first_xid := null;
  c.first_pos := null;
  c.first_due := null;
  c.withheld := null;
  c.expired := null;
  c.keys := null;
  return c;
end $$;
