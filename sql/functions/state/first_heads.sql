-- posthaste.first_heads: the first entries of messages, of those that are still in the log.
-- They are looked up by neighborhoods of their positions, because each lookup reads all rows that
-- the index of these has not summarized yet. Reads: entries.
create or replace function posthaste.first_heads(p_ids bigint[])
returns posthaste.head[] language plpgsql stable
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = on set jit = off as $$
begin
  return array(
    select e.head
      from (select min(x) as low, max(x) as high from unnest(p_ids) x group by x >> 10) z
     cross join lateral (
       select e.pos, e.head from posthaste.entries e
        where ((e.pos >> 22) & 15) = (z.low >> 22) & 15 and e.pos between z.low and z.high and e.message_id is null offset 0) e
     where e.pos in (select x from unnest(p_ids) x));
end $$;
