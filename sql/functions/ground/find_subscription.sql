-- posthaste.find_subscription: resolves the names of a queue and a subscription. lanes does not
-- count those of kinds. A paused queue has none.
-- Errors: PH404 with the field queue or subscription.
-- Reads: queue_settings, subscriptions.
create or replace function posthaste.find_subscription(p_queue text, p_subscription text,
  out queue_id int, out number int, out lanes int, out timeout double precision, out width int,
  out at_most_once boolean)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
  select q.id, s.number, case when q.paused_at is null then q.width * case when q.prioritized then 4 else 1 end else 0 end, extract(epoch from q.timeout), q.width, q.mode = 'at_most_once'
    into queue_id, number, lanes, timeout, width, at_most_once
    from posthaste.queue_settings q
    left join posthaste.subscriptions s
      on s.queue_id = q.id and s.name = coalesce(nullif(p_subscription, ''), 'default') and s.dropped_at is null
   where q.name = p_queue and q.dropped_at is null;
  if queue_id is null then
    perform posthaste.find_queue(p_queue); -- raises the error
  elsif number is null then
    raise exception using errcode = 'PH404', column = 'subscription',
      message = format('queue %L has no subscription %L', p_queue, coalesce(nullif(p_subscription, ''), 'default')),
      hint = format('it has %s', (select string_agg(quote_literal(s.name), ', ' order by s.name) from posthaste.subscriptions s
                                where s.queue_id = find_subscription.queue_id and s.dropped_at is null));
  end if;
end $$;
