-- posthaste.named_heads: the newest messages of given queues that bear a
-- reference or a term or both, below an id: their entries that are left, first
-- and later ones.
-- Slot by slot from the newest, until enough messages are found of which no
-- older slot can hold a newer one. By reference it reads what it returns, and at
-- most 10,000 retries a slot; by term all of a slot that bear the term.
-- Reads: slots, positions, entries, outcomes, dead_letter_entries, parked.
create or replace function posthaste.named_heads(p_queues int[], p_reference text, p_term text, p_before bigint, p_max int)
returns setof posthaste.head language plpgsql stable rows 100
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off set max_parallel_workers_per_gather = 0 as $$
declare
  v_last bigint := (select last_value from posthaste.positions);
  v_before bigint := least(coalesce(p_before, v_last + 1), v_last + 1);
  v_epoch bigint;
  v_ids bigint[];
  v_heads posthaste.head[];
  v_lowest bigint;
  v_found int;
begin
  -- Dead letters outlive the log.
  if p_reference is not null then
    v_ids := array(select d.message_id from posthaste.dead_letter_entries d
                    where d.queue_id = any (p_queues) and d.reference = p_reference and d.message_id < v_before
                      and (p_term is null or d.terms @> array[p_term])
                    order by d.message_id desc limit p_max);
  else
    v_ids := array(select d.message_id from (select * from posthaste.dead_letter_entries d where d.terms @> array[p_term] offset 0) d
                    where d.queue_id = any (p_queues) and d.message_id < v_before
                    order by d.message_id desc limit p_max);
  end if;
  v_heads := array(select h from posthaste.dead_heads(v_ids) h);
  -- So do parked messages.
  if p_reference is not null then
    v_ids := array(select p.message_id from posthaste.parked p
                    where p.reference = p_reference and p.subscriber >> 10 = any (p_queues) and p.message_id < v_before
                      and (p_term is null or p.terms @> array[p_term])
                    order by p.message_id desc limit p_max);
  else
    v_ids := array(select p.message_id from (select * from posthaste.parked p where p.terms @> array[p_term] offset 0) p
                    where p.subscriber >> 10 = any (p_queues) and p.message_id < v_before
                    order by p.message_id desc limit p_max);
  end if;
  v_heads := v_heads || array(select h from posthaste.parked_heads(v_ids) h);
  for v_epoch in
    select x.e from (select s.epoch as e from posthaste.slots s where s.live
                     union select generate_series(greatest((select max(s.epoch) from posthaste.slots s where s.live) + 1, (v_last >> 22) - 15), v_last >> 22)) x
     order by x.e desc
  loop
    if p_reference is not null then
      v_heads := v_heads || array(select h from posthaste.reference_heads(p_queues, p_reference, p_term, v_epoch & 15, v_before, p_max) h);
    else
      v_heads := v_heads || array(
        select posthaste.head_of(e) from (
          select * from posthaste.entries e where ((e.pos >> 22) & 15) = v_epoch & 15 and e.terms @> array[p_term] offset 0) e
         where e.queue_id = any (p_queues) and coalesce(e.message_id, e.pos) < v_before);
      -- Those whose terms were found by whoever handled them. Their entries lie in
      -- this slot or an older one.
      v_ids := array(
        select o.pos from (select * from posthaste.outcomes o where o.slot = v_epoch & 15 and o.terms @> array[p_term] offset 0) o
         where (o.reader >> 20)::int = any (p_queues) and o.message_id < v_before
         order by o.message_id desc limit p_max);
      -- Those that lie near one another at once: the index of positions leads to
      -- some thousand of them.
      v_heads := v_heads || array(
        select posthaste.head_of(e)
          from (select array_agg(x) as poss, min(x) as low, max(x) as high from unnest(v_ids) x group by x >> 10) i
         cross join lateral (select * from posthaste.entries e where ((e.pos >> 22) & 15) = (i.low >> 22) & 15 and e.pos between i.low and i.high offset 0) e
         where e.pos = any (i.poss));
    end if;
    select array_agg(x.h), min(x.id), max(x.rank) into v_heads, v_lowest, v_found
      from (select (u.h).message_id as id, u.h, dense_rank() over (order by (u.h).message_id desc) as rank
              from (select a as h from unnest(v_heads) a) u) x
     where x.rank <= p_max;
    v_heads := coalesce(v_heads, '{}');
    exit when v_found = p_max and v_lowest >= v_epoch << 22;
  end loop;
  return query select (x).* from unnest(v_heads) x;
end $$;
