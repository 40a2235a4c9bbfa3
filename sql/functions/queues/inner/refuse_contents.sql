-- posthaste.refuse_contents: fails if a message of a queue, or of one of its subscriptions, waits,
-- is in flight or is a dead letter. Messages of transactions that have not committed are not seen.
-- The counters of the view queues may lag, so this counts first.
-- Arguments: the queue; the number of the subscription, or null for all.
-- Errors: PH503. Locks: the maintenance key. The caller holds the queue's key exclusively, without
-- which a replay could take a dead letter between the two looks.
-- Updates: counters, counted. Reads: subscriptions, dead_letter_entries.
create or replace function posthaste.refuse_contents(p_queue int, p_subscription int)
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_found record;
begin
  perform pg_advisory_xact_lock(posthaste.lock_key(6, 0));
  perform posthaste.count_up();
  -- After the count: a message that died meanwhile is in flight there, or dead here.
  for v_found in
    select q.name as queue, s.name as subscription, greatest(k.sent + k.again - k.dropped - k.sifted - k.handed, 0) as depth, greatest(k.handed - k.settled, 0) as in_flight,
           (select count(*) from posthaste.dead_letter_entries d where d.queue_id = q.id and d.subscription = s.number) as dead
      from posthaste.queue_settings q
      join posthaste.subscriptions s on s.queue_id = q.id and s.dropped_at is null
      join posthaste.counters k on k.queue_id = q.id and k.subscription = s.number
     where q.id = p_queue and (p_subscription is null or s.number = p_subscription)
     order by s.number
  loop
    if v_found.depth + v_found.in_flight + v_found.dead > 0 then
      raise exception using errcode = 'PH503', column = 'if_empty',
        message = format('subscription %L of queue %L is not empty: %s messages wait, %s are in flight, and %s are dead letters', v_found.subscription, v_found.queue, v_found.depth, v_found.in_flight, v_found.dead),
        hint = 'handle or purge its messages first';
    end if;
  end loop;
end $$;
