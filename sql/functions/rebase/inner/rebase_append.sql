-- posthaste.rebase_append: appends the entries of rebase_work again, in their old order, a
-- revolution further on; messages that wait for their key are parked.
-- Fresh messages become due at once, because entries of the due track can be for a single
-- subscription. In keyed queues all have the lowest place in the order, and so are ordered by
-- their ids: a sender that waits for the lock may have a place below this transaction's id.
-- Returns: the first of the new positions.
-- Called by posthaste.rebase under its locks. Inserts: entries_other, words, parked, cancelled.
-- Updates: positions.
create or replace function posthaste.rebase_append()
returns bigint language plpgsql volatile set search_path = pg_catalog, pg_temp set jit = off set enable_nestloop = off as $$
declare
  v_first constant xid8 := '1';
  v_now timestamptz := clock_timestamp();
  v_last bigint := (select last_value from posthaste.positions);
  v_start bigint;
  v_all bigint;
  v_done bigint := 0;
  v_rows bigint;
  v_block bigint;
begin
  -- A free slot, if there is one, so that the others can be truncated.
  v_start := posthaste.slot_start(v_last, coalesce((select s.slot from posthaste.slots s where not s.live order by (s.slot - (v_last >> 22)) & 15 limit 1), ((v_last >> 22) + 1) & 15)::int);
  perform setval('posthaste.positions', v_start, false);
  update pg_temp.rebase_work w set n = o.n
    from (select x.row, nextval('posthaste.positions') as n
            from (select y.ctid as row from pg_temp.rebase_work y order by y.pos, y.for_subscription nulls first) x) o
   where w.ctid = o.row;
  analyze pg_temp.rebase_work;
  select count(*) into v_all from pg_temp.rebase_work;
  for v_block in select distinct w.pos >> 20 from pg_temp.rebase_work w order by 1 loop
    -- One slot's part of the ring: as a constant that the planner can use.
    execute format($q$
      with again as (
      insert into posthaste.entries_other (pos, ord, message_id, created_at, due_at, queue_id, lane, for_subscription, attempt, failures, losses, losses_alone, ages_from,
                                     content_type, key, kind, reference, headers, terms, trace, story, payload)
      select w.n, case when e.ord is not null then $1 end, coalesce(e.message_id, e.pos), e.created_at, case when w.again then $2 else least(coalesce(e.due_at, $2), posthaste.last_time() - interval '1 second') end,
             e.queue_id, e.lane, w.for_subscription, least(e.attempt + w.again::int, 32767), e.failures, e.losses, e.losses_alone, e.ages_from,
             e.content_type, e.key, e.kind, e.reference, e.headers, e.terms, e.trace,
             case when w.again then posthaste.story_add(e.story, w.lost) else e.story end, e.payload
        from pg_temp.rebase_work w join posthaste.entries e on e.pos = w.pos and ((e.pos >> 22) & 15) = %s
       where not w.parks and w.pos >= $3 and w.pos < $4 and e.pos >= $3 and e.pos < $4
       order by w.n
      returning pos, message_id, queue_id, lane, reference, terms), named as (
      insert into posthaste.words (slot, message_id, pos, queue_id, lane, word)
      select a.pos >> 22 & 15, a.message_id, a.pos, a.queue_id, a.lane, w
        from again a cross join lateral unnest(posthaste.words_of(a.reference, a.terms)) w where num_nonnulls(a.reference, a.terms) > 0
      )
      select from again$q$, (v_block >> 2) & 15)
      using v_first, v_now, v_block << 20, (v_block + 1) << 20;
    get diagnostics v_rows = row_count;
    v_done := v_done + v_rows;
    execute format($q$
      insert into posthaste.parked (subscriber, key, ord, message_id, pos, lane, reason, created_at, attempt, failures, losses, losses_alone, ages_from,
                                    content_type, kind, reference, headers, terms, trace, story, payload)
      select w.queue_id::bigint << 10 | u.number, coalesce(e.key, ''), $1, coalesce(e.message_id, e.pos), w.n, e.lane & 255, 'rebased', e.created_at,
             least(e.attempt + w.again::int, 32767), e.failures, e.losses, e.losses_alone, e.ages_from, e.content_type, e.kind, e.reference, e.headers, e.terms, e.trace,
             case when w.again then posthaste.story_add(e.story, w.lost) else e.story end, e.payload
        from pg_temp.rebase_work w join posthaste.entries e on e.pos = w.pos and ((e.pos >> 22) & 15) = %s
       cross join lateral unnest(w.needs) u (number)
       where w.parks and w.pos >= $2 and w.pos < $3 and e.pos >= $2 and e.pos < $3$q$, (v_block >> 2) & 15)
      using v_first, v_block << 20, (v_block + 1) << 20;
    get diagnostics v_rows = row_count;
    v_done := v_done + v_rows;
    raise notice 'appended % of % messages', v_done, v_all;
  end loop;
  -- It is no second message for subscriptions that handed it out before.
  insert into posthaste.cancelled (pos, subscriber, outcome, noted)
  select w.n, w.queue_id::bigint << 10 | u.number, 'earlier', '3'
    from pg_temp.rebase_work w cross join lateral unnest(w.earlier) u (number)
   where not w.parks and w.for_subscription is null;
  return v_start;
end $$;
