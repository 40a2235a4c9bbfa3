-- posthaste.sift_from_here: makes a fresh reader skip withdrawn entries from its cursor on,
-- until it has passed all of them.
-- Arguments: the reader. Called under its lock. Inserts: claims.
create or replace function posthaste.sift_from_here(p_reader bigint)
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_cursor posthaste.claims := posthaste.cursor_of(p_reader, posthaste.live_slots());
begin
  if v_cursor.part <> 3 then
    v_cursor.part := 3;
    v_cursor.t0 := null;
    v_cursor.t1 := null;
    perform posthaste.put_claim(posthaste.without_places(v_cursor), null, null, null, false);
  end if;
end $$;
