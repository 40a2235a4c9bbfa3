-- posthaste.attempt_options: how often a message is tried, and the bounds of the waits between
-- its attempts in seconds: by its own options, then by those of its kind, then by those of its queue.
-- Arguments: the message's headers as they are stored; its kind; its queue. The empty name has its options, as an
-- object of numbers: attempts, base and max (of the backoff, in seconds) and timeout, which only
-- workers read. They lie in the headers because these stay with the message wherever it goes,
-- and few messages have options.
create or replace function posthaste.attempt_options(p_headers jsonb, p_kind text, q posthaste.queue_settings, out most int, out base float8, out max float8)
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  o jsonb := case when q.kind_options is null then p_headers -> '' else coalesce(q.kind_options -> p_kind, '{}') || coalesce(p_headers -> '', '{}') end;
begin
  most := coalesce((o ->> 'attempts')::int, q.max_attempts);
  base := coalesce((o ->> 'base')::float8, extract(epoch from q.backoff_base));
  max := coalesce((o ->> 'max')::float8, extract(epoch from q.backoff_max));
end $$;
