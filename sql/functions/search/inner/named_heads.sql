-- posthaste.named_heads: the newest messages of given queues that have a reference or a term or
-- both, below an id: their remaining entries, first and later ones.
-- Slot by slot from the newest, until enough messages are found and no older slot can hold a
-- newer one. It reads its result, and the words of at most 10,000 retries, scheduled messages
-- and found terms per slot and queue.
-- Reads: slots, positions, words, entries, dead_letter_entries, parked.
create or replace function posthaste.named_heads(p_queues int[], p_reference text, p_term text, p_before bigint, p_max int)
returns setof posthaste.head language plpgsql stable rows 100
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off set max_parallel_workers_per_gather = 0 as $$
declare
  v_last bigint := (select last_value from posthaste.positions);
  v_before bigint := least(coalesce(p_before, v_last + 1), v_last + 1);
  v_epoch bigint;
  -- With both it looks up the reference, which fewer messages have.
  v_word text := coalesce('r' || p_reference, 't' || p_term);
  v_also text := case when p_reference is not null then 't' || p_term end;
  v_words posthaste.words[];
  v_ids bigint[];
  v_heads posthaste.head[] := '{}';
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
  -- So do parked messages.
  if p_reference is not null then
    v_ids := v_ids || array(select p.message_id from posthaste.parked p
                    where p.reference = p_reference and p.subscriber >> 10 = any (p_queues) and p.message_id < v_before
                      and (p_term is null or p.terms @> array[p_term])
                    order by p.message_id desc limit p_max);
  else
    v_ids := v_ids || array(select p.message_id from (select * from posthaste.parked p where p.terms @> array[p_term] offset 0) p
                    where p.subscriber >> 10 = any (p_queues) and p.message_id < v_before
                    order by p.message_id desc limit p_max);
  end if;
  if v_ids <> '{}' then
    v_heads := posthaste.other_heads(v_ids);
  end if;
  for v_epoch in
    -- Once for each slot: its words are those of all its epochs.
    select max(e) from posthaste.ring_epochs() e group by e & 15 order by 1 desc
  loop
    v_words := array(
      select row(w.slot, w.message_id, w.pos, w.xid, w.queue_id, w.lane, w.word)::posthaste.words from unnest(p_queues) q (id) cross join lateral (
        (select x.*, 1 as rank from posthaste.words x
          where x.slot = v_epoch & 15 and x.word = v_word and x.queue_id = q.id and x.message_id < v_before and x.xid is not null
            and (v_also is null or (select y.pos from posthaste.words y where y.word = v_also and y.queue_id = x.queue_id and y.message_id = x.message_id
                                     order by y.word, y.queue_id, y.message_id limit 1) is not null)
          order by x.message_id desc limit p_max)
        union all
        (select x.*, dense_rank() over (order by x.message_id desc) as rank from posthaste.words x
          where x.slot = v_epoch & 15 and x.word = v_word and x.queue_id = q.id and x.message_id < v_before and x.xid is null
            and (v_also is null or (select y.pos from posthaste.words y where y.word = v_also and y.queue_id = x.queue_id and y.message_id = x.message_id
                                     order by y.word, y.queue_id, y.message_id limit 1) is not null)
          order by x.message_id desc limit 10000)) w
       where w.rank <= p_max);
    v_heads := v_heads || array(
      select e.head from unnest(v_words) w cross join lateral (
        select e.head from posthaste.entries e
         where e.plain and e.queue_id = w.queue_id and e.lane = w.lane and e.xid = w.xid and e.pos = w.pos and posthaste.slot_of(e.pos) = v_epoch & 15
         order by e.xid, e.pos limit 1) e);
    -- The others, which may lie in an older slot: those near one another at once, because the
    -- index of positions leads to some thousand of them.
    v_heads := v_heads || array(
      select e.head
        from (select array_agg(w.pos) as poss, min(w.pos) as low, max(w.pos) as high from unnest(v_words) w where w.xid is null group by w.pos >> 10) i
       cross join lateral (select e.pos, e.head from posthaste.entries e where posthaste.slot_of(e.pos) = posthaste.slot_of(i.low) and e.pos between i.low and i.high offset 0) e
       where e.pos = any (i.poss));
    select array_agg(x.h), min(x.id), max(x.rank) into v_heads, v_lowest, v_found
      from (select (u.h).message_id as id, u.h, dense_rank() over (order by (u.h).message_id desc) as rank
              from (select a as h from unnest(v_heads) a) u) x
     where x.rank <= p_max;
    v_heads := coalesce(v_heads, '{}');
    exit when v_found = p_max and v_lowest >= v_epoch << 22;
  end loop;
  return query select (x).* from unnest(v_heads) x;
end $$;
