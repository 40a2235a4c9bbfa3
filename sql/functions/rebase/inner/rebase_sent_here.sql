-- posthaste.rebase_sent_here: finds the entries that were sent in a restored copy, and gives them
-- an id that no restored cursor or claim has seen.
-- The restore created a slot's indexes after it inserted the rows. A row with a higher xmin was
-- written afterwards; then its stored id is higher, too, and at most xmin, which may be that of a
-- savepoint.
-- Called by posthaste.rebase under its locks. Updates: entries_plain, entries_other.
create or replace function posthaste.rebase_sent_here()
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_now bigint := pg_current_xact_id()::text::bigint;
  v_restored bigint;
  v_table text;
begin
  for v_table in select t || s from unnest(array['posthaste.entries_plain_', 'posthaste.entries_other_']) t cross join generate_series(0, 15) s loop
    -- xmin has the lower 32 bits only.
    select min(v_now - ((v_now - i.xmin::text::bigint) & 4294967295)) into v_restored from pg_index i where i.indrelid = v_table::regclass;
    execute format('update %s e set xid = ''9000000000000000000''
                     where e.xid > $2::text::xid8 and e.xid <= $1::text::xid8 and e.xmin::text::bigint > 2
                       and ($1 - e.xmin::text::bigint) & 4294967295 < $1 - $2
                       and e.xid::text::bigint <= $1 - (($1 - e.xmin::text::bigint) & 4294967295)', v_table::regclass)
      using v_now, v_restored;
  end loop;
end $$;
