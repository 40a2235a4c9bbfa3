-- posthaste.free_number: a number for a new subscription of a queue: one that was never used,
-- or else one of a dropped subscription that no row mentions: the whole ring was written
-- again since, with an hour to spare for transactions that were in flight.
-- Errors: PH409. Called under the maintenance key. Deletes: subscriptions, parked, lease_cursors.
create or replace function posthaste.free_number(p_queue int)
returns smallint language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_number smallint;
begin
  select max(s.number) + 1 into v_number from posthaste.subscriptions s where s.queue_id = p_queue;
  if v_number <= 1023 then
    return v_number;
  end if;
  select s.number into v_number from posthaste.subscriptions s
   where s.queue_id = p_queue and s.dropped_at < (select min(x.opened_at) from posthaste.slots x where x.live) - interval '1 hour'
     and not exists (select from posthaste.cancelled c where c.subscriber = (s.queue_id::bigint << 10 | s.number))
     and not exists (select from posthaste.dead_letter_entries d where d.queue_id = s.queue_id and d.subscription = s.number)
     and not exists (select from posthaste.history h where h.queue_id = s.queue_id and h.subscription = s.number)
   order by s.dropped_at limit 1;
  if v_number is null then
    raise exception using errcode = 'PH409', column = 'subscription',
      message = 'the queue has had 1,024 subscriptions, and entries of all of them are still kept',
      hint = 'try again when entries of dropped subscriptions have been reclaimed';
  end if;
  -- Rows of a settlement that was in flight when the subscription ended.
  delete from posthaste.parked p where p.subscriber = (p_queue::bigint << 10 | v_number);
  delete from posthaste.lease_cursors z where z.subscriber = (p_queue::bigint << 10 | v_number);
  delete from posthaste.history_cursors h where h.reader >> 10 = (p_queue::bigint << 10 | v_number);
  delete from posthaste.subscriptions s where s.queue_id = p_queue and s.number = v_number;
  return v_number;
end $$;
