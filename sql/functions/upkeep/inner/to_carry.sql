-- posthaste.to_carry: whether a due entry must be appended again before its slot is reclaimed:
-- it was not so far, and some subscription may still hand it out, or a later one that begins
-- with the oldest message.
-- Arguments: queue, position, the one subscription it is for (null: all).
-- Reads: subscriptions, cancelled.
create or replace function posthaste.to_carry(p_queue int, p_pos bigint, p_for int)
returns boolean language plpgsql stable set search_path = pg_catalog, pg_temp set enable_seqscan = off as $$
begin
  return not exists (select from posthaste.cancelled z where z.pos = p_pos and z.outcome = 'carried')
     and exists (select from posthaste.subscriptions x
                  where x.queue_id = p_queue and x.dropped_at is null and (p_for is null or x.number = p_for)
                    and not exists (select from posthaste.cancelled z
                                     where z.pos = p_pos and z.subscriber = p_queue::bigint << 10 | x.number and z.outcome <> 'earlier'));
end $$;
