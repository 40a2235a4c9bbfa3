-- Moves the waiting jobs. A job that River is running stays with River.
with moved as (
  delete from river_job
   where state in ('available', 'scheduled', 'retryable')
  returning kind, args, queue, priority, scheduled_at, tags
)
select count(posthaste.send(
         case queue when 'default' then 'shop' else queue end,
         args,
         jsonb_build_object('kind', kind, 'send_at', scheduled_at, 'priority', priority - 1, 'terms', to_jsonb(tags))))
  from moved;
