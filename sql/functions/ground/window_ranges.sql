-- posthaste.window_ranges: the ids of the transactions that became visible between two
-- snapshots, as ascending half-open ranges lo ≤ id < hi. First those that s0 lists as in
-- progress and s1 sees, then, from xmax(s0) up to xmax(s1), the gaps between those that s1
-- lists as in progress. So readers do not walk over uncommitted entries, and one old open
-- writer does not make a reader walk the log.
create or replace function posthaste.window_ranges(s0 pg_snapshot, s1 pg_snapshot, out lo bigint[], out hi bigint[])
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  x0 xid8 := pg_snapshot_xmax(s0);
  x1 xid8 := pg_snapshot_xmax(s1);
begin
  if pg_snapshot_xmin(s0) = x0 and pg_snapshot_xmin(s1) >= x1 then
    lo := array[x0::text::bigint];
    hi := array[x1::text::bigint];
    return;
  end if;
  select array_agg(r.lo order by r.lo), array_agg(r.hi order by r.lo) into lo, hi
    from (
      select x::text::bigint as lo, x::text::bigint + 1 as hi
        from pg_snapshot_xip(s0) x
       where pg_visible_in_snapshot(x, s1)
      union all
      select coalesce(lag(b.x) over w + 1, x0::text::bigint), b.x
        from (select x::text::bigint as x from pg_snapshot_xip(s1) x where x >= x0
              union all select greatest(x0, x1)::text::bigint) b
      window w as (order by b.x)
    ) r
   where r.lo < r.hi;
  lo := coalesce(lo, '{}');
  hi := coalesce(hi, '{}');
end $$;
