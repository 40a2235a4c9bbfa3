-- posthaste.sift_from_here: has a fresh reader leave out withdrawn entries from
-- its cursor on, until all of them lie behind.
-- Arguments: the reader. Called under its lock. Inserts: claims.
create or replace function posthaste.sift_from_here(p_reader bigint)
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  c posthaste.claims := posthaste.cursor_of(p_reader, posthaste.live_slots());
begin
  if c.part <> 3 then
    c.part := 3;
    c.t0 := null;
    c.t1 := null;
    perform posthaste.put_claim(posthaste.without_places(c), null, null, null, false);
  end if;
end $$;
