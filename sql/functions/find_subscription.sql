-- posthaste.find_subscription: resolves names of a queue and a subscription.
-- Errors: PH404 with the field queue or subscription.
-- Reads: queue_settings, subscriptions.
create or replace function posthaste.find_subscription(p_queue text, p_subscription text,
  out queue_id int, out number int, out lanes int, out timeout double precision)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  select q.id, s.number, q.lanes, extract(epoch from q.timeout) into queue_id, number, lanes, timeout
    from posthaste.queue_settings q
    left join posthaste.subscriptions s
      on s.queue_id = q.id and s.name = coalesce(nullif(p_subscription, ''), 'default') and s.dropped_at is null
   where q.name = p_queue and q.dropped_at is null;
  if queue_id is null then
    raise exception using errcode = 'PH404', column = 'queue', message = format('queue %L does not exist', p_queue),
      hint = format('create it: select posthaste.create_queue(%L)', p_queue);
  elsif number is null then
    raise exception using errcode = 'PH404', column = 'subscription',
      message = format('queue %L has no subscription %L', p_queue, p_subscription), hint = 'every queue has the subscription ''default''';
  end if;
end $$;
