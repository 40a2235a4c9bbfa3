-- posthaste.find_subscription: resolves names of a queue and a subscription.
-- Errors: PH404 with the field queue or subscription.
-- Reads: queue_settings, subscriptions.
create or replace function posthaste.find_subscription(p_queue text, p_subscription text, out q posthaste.queue_settings, out number int)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  select * into q from posthaste.queue_settings where name = p_queue and dropped_at is null;
  if q.id is null then
    raise exception using errcode = 'PH404', column = 'queue', message = format('queue %L does not exist', p_queue),
      hint = format('create it: select posthaste.create_queue(%L)', p_queue);
  end if;
  select s.number into number from posthaste.subscriptions s
   where s.queue_id = q.id and s.name = coalesce(nullif(p_subscription, ''), 'default') and s.dropped_at is null;
  if number is null then
    raise exception using errcode = 'PH404', column = 'subscription',
      message = format('queue %L has no subscription %L', p_queue, p_subscription), hint = 'every queue has the subscription ''default''';
  end if;
end $$;
