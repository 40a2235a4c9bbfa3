-- posthaste.dead_filter: reads what dead letters are to be chosen by.
-- Arguments: queue, subscription (of that queue), kind, key, reference, term (one
-- of its terms), error (part of the last error's text, in any case), died_from
-- and died_before (times; from is included, before is not).
-- Errors: PH400 and PH404 with the field. Reads: queue_settings, subscriptions.
create or replace function posthaste.dead_filter(p_filter jsonb)
returns posthaste.dead_filter language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  f posthaste.dead_filter;
  v_name text;
begin
  perform posthaste.check_options(p_filter, array['queue', 'subscription', 'kind', 'key', 'reference', 'term', 'error', 'died_from', 'died_before'], '{}');
  v_name := nullif(posthaste.option_text(p_filter, 'subscription'), '');
  if nullif(posthaste.option_text(p_filter, 'queue'), '') is not null then
    f.queue_id := posthaste.find_queue(p_filter ->> 'queue');
    if v_name is not null then
      f.subscription := (posthaste.find_subscription(p_filter ->> 'queue', v_name)).number;
    end if;
  elsif v_name is not null then
    raise exception using errcode = 'PH400', column = 'subscription', message = 'a subscription is one of a queue, and no queue is given',
      hint = 'give queue, too';
  end if;
  f.kind := nullif(posthaste.option_text(p_filter, 'kind'), '');
  f.key := nullif(posthaste.option_text(p_filter, 'key'), '');
  f.reference := nullif(posthaste.option_text(p_filter, 'reference'), '');
  f.term := nullif(posthaste.option_text(p_filter, 'term'), '');
  f.error := lower(nullif(posthaste.option_text(p_filter, 'error'), ''));
  foreach v_name in array array['died_from', 'died_before'] loop
    begin
      if v_name = 'died_from' then
        f.died_from := nullif(posthaste.option_text(p_filter, v_name), '')::timestamptz;
      else
        f.died_before := nullif(posthaste.option_text(p_filter, v_name), '')::timestamptz;
      end if;
    exception when data_exception then
      raise exception using errcode = 'PH400', column = v_name, message = format('%s is no time: %L', v_name, p_filter ->> v_name),
        hint = 'for example 2030-01-31T12:00:00Z';
    end;
  end loop;
  return f;
end $$;
