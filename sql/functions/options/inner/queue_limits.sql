-- posthaste.queue_limits: the limits among a queue's options: concurrency and key_concurrency
-- (1 to 100,000 unsettled messages of the queue or of one key), rate_limit and
-- key_rate_limit (deliveries per time, as posthaste.option_rate reads them).
-- Arguments: the options; the queue's settings now. Returns: the settings with the limits that
-- are named. A rate that is named without a burst, and does not change, keeps its burst.
-- Errors: PH400 with the option's name.
create or replace function posthaste.queue_limits(o jsonb, q posthaste.queue_settings)
returns posthaste.queue_settings language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v record;
begin
  if o ? 'concurrency' then
    q.concurrency := posthaste.option_int(o, 'concurrency', 1, 100000);
  end if;
  if o ? 'key_concurrency' then
    q.key_concurrency := posthaste.option_int(o, 'key_concurrency', 1, 100000);
  end if;
  if o ? 'rate_limit' then
    v := posthaste.option_rate(o, 'rate_limit');
    q.burst := case when v.rate = q.rate and o #>> '{rate_limit,burst}' is null then q.burst else v.burst end;
    q.rate := v.rate;
  end if;
  if o ? 'key_rate_limit' then
    v := posthaste.option_rate(o, 'key_rate_limit');
    q.key_burst := case when v.rate = q.key_rate and o #>> '{key_rate_limit,burst}' is null then q.key_burst else v.burst end;
    q.key_rate := v.rate;
  end if;
  if q.mode = 'at_most_once' and q.concurrency is not null then
    raise exception using errcode = 'PH400', column = 'concurrency',
      message = 'an at-most-once queue cannot have a concurrency: its messages are settled as soon as they are handed out', hint = 'use rate_limit';
  elsif q.mode = 'at_most_once' and (q.ordered or q.key_concurrency is not null) then
    raise exception using errcode = 'PH400', column = 'mode',
      message = 'an at-most-once queue cannot be ordered or have a key_concurrency: it does not know when a message ends, so it cannot start the next one of its key then',
      hint = 'leave out mode';
  elsif q.ordered and q.key_concurrency is not null then
    raise exception using errcode = 'PH400', column = 'key_concurrency',
      message = 'options ''ordered'' and ''key_concurrency'' exclude each other: an ordered queue runs one message of a key at a time';
  elsif q.key_concurrency > q.concurrency then
    raise exception using errcode = 'PH400', column = 'key_concurrency',
      message = format('key_concurrency (%s) is above concurrency (%s), so it has no effect', q.key_concurrency, q.concurrency);
  elsif q.key_rate > q.rate then
    raise exception using errcode = 'PH400', column = 'key_rate_limit',
      message = format('key_rate_limit (%s a second) is above rate_limit (%s a second), so it has no effect', q.key_rate, q.rate);
  end if;
  return q;
end $$;
