-- posthaste.queue_options: the settings of a queue after its options change. Options that are
-- not named keep their values; one that is null gets its default again.
-- Options: max_attempts (20), backoff {base: '1 second', max: '1 hour'} (base not
-- above max, max at most 365 days), timeout ('30 seconds', at most 365 days),
-- max_age (none; older messages are not handed out), max_payload in bytes (1048576, at most 33554432), lanes (1;
-- 8 if ordered), mode ('at_least_once'; 'at_most_once' never retries and so excludes
-- max_attempts and backoff), retention (none; how long settled messages are
-- kept beyond the ring), retain_payload (false), ordered (false; by key), on_dead
-- ('continue', or 'stop' the key of an ordered queue), fair (false; keys take turns),
-- the limits as posthaste.queue_limits reads them, kinds (none) as posthaste.option_kinds does, and
-- owner (none), a name.
-- Arguments: the options; the settings now, of which null ones count as named; the settings of
-- the queue if it exists: a value that is not allowed any more must not prevent an application
-- from starting if its queue already has it.
-- Errors: PH400 with the option's name.
create or replace function posthaste.queue_options(o jsonb, q posthaste.queue_settings, p_is posthaste.queue_settings)
returns posthaste.queue_settings language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  b jsonb;
  v_kind text;
  v_given jsonb;
begin
  perform posthaste.check_options(o, array['max_attempts', 'backoff', 'timeout', 'max_age', 'max_payload', 'lanes', 'mode', 'retention', 'retain_payload',
      'ordered', 'on_dead', 'fair', 'concurrency', 'rate_limit', 'key_concurrency', 'key_rate_limit', 'kinds', 'owner'], '{}');
  b := case when jsonb_typeof(o -> 'backoff') = 'null' then '{"base": null, "max": null}' else coalesce(o -> 'backoff', '{}') end;
  if jsonb_typeof(b) <> 'object' then
    raise exception using errcode = 'PH400', column = 'backoff', message = 'option ''backoff'' must be an object with base and max';
  end if;
  perform posthaste.check_options(b, array['base', 'max'], '{}');
  q.max_attempts := case when o ? 'max_attempts' or q.max_attempts is null then coalesce(posthaste.option_int(o, 'max_attempts', 1, 1000), 20) else q.max_attempts end;
  q.backoff_base := case when b ? 'base' or q.backoff_base is null then coalesce(posthaste.option_interval(b, 'base'), '1 second') else q.backoff_base end;
  q.backoff_max := case when b ? 'max' or q.backoff_max is null then coalesce(posthaste.option_interval(b, 'max'), '1 hour') else q.backoff_max end;
  if (q.backoff_max < q.backoff_base or q.backoff_max > '365 days') and (q.backoff_base, q.backoff_max) is distinct from (p_is.backoff_base, p_is.backoff_max) then
    raise exception using errcode = 'PH400', column = 'backoff', message = 'option ''backoff'' must not be negative, and its max must be at least its base and at most 365 days',
      hint = 'the defaults are base 1 second and max 1 hour';
  end if;
  q.timeout := case when o ? 'timeout' or q.timeout is null then coalesce(posthaste.option_interval(o, 'timeout'), '30 seconds') else q.timeout end;
  if q.timeout <= '0' or q.timeout > '365 days' and q.timeout is distinct from p_is.timeout then
    raise exception using errcode = 'PH400', column = 'timeout', message = 'option ''timeout'' must be above zero and at most 365 days';
  end if;
  q.max_age := case when o ? 'max_age' then posthaste.option_interval(o, 'max_age', 36500) else q.max_age end;
  q.max_payload := case when o ? 'max_payload' or q.max_payload is null then coalesce(posthaste.option_int(o, 'max_payload', 1, 33554432), 1048576) else q.max_payload end;
  q.mode := case when o ? 'mode' or q.mode is null then coalesce(posthaste.option_text(o, 'mode'), 'at_least_once') else q.mode end;
  if q.mode not in ('at_least_once', 'at_most_once') then
    raise exception using errcode = 'PH400', column = 'mode', message = format('option ''mode'' must be at_least_once or at_most_once, got %L', q.mode);
  elsif q.mode = 'at_most_once' and (o ->> 'max_attempts' is not null or o ->> 'backoff' is not null) then
    raise exception using errcode = 'PH400', column = case when o ? 'max_attempts' then 'max_attempts' else 'backoff' end,
      message = 'an at-most-once queue never retries: leave out max_attempts and backoff';
  end if;
  q.retention := case when o ? 'retention' then posthaste.option_interval(o, 'retention', 36500) else q.retention end;
  q.retain_payload := case when o ? 'retain_payload' or q.retain_payload is null then posthaste.option_boolean(o, 'retain_payload', false) else q.retain_payload end;
  if q.retain_payload and q.retention is null then
    raise exception using errcode = 'PH400', column = 'retain_payload', message = 'option ''retain_payload'' needs a retention', hint = 'also set retention';
  end if;
  q.ordered := case when o ? 'ordered' or q.ordered is null then posthaste.option_boolean(o, 'ordered', false) else q.ordered end;
  q.on_dead := case when o ? 'on_dead' or q.on_dead is null then coalesce(posthaste.option_text(o, 'on_dead'), 'continue') else q.on_dead end;
  q.fair := case when o ? 'fair' or q.fair is null then posthaste.option_boolean(o, 'fair', false) else q.fair end;
  q := posthaste.queue_limits(o, q);
  if q.on_dead not in ('continue', 'stop') then
    raise exception using errcode = 'PH400', column = 'on_dead', message = format('option ''on_dead'' must be continue or stop, got %L', q.on_dead);
  elsif q.on_dead = 'stop' and not q.ordered then
    raise exception using errcode = 'PH400', column = 'on_dead', message = 'option ''on_dead'' is only for ordered queues: in others no message waits for another';
  elsif q.ordered and q.fair then
    raise exception using errcode = 'PH400', column = 'fair', message = 'options ''ordered'' and ''fair'' exclude each other: an ordered queue runs its keys concurrently anyway';
  end if;
  q.width := case when o ? 'lanes' or q.width is null then coalesce(posthaste.option_int(o, 'lanes', 1, 64), case when q.ordered then 8 else 1 end) else q.width end;
  if o ? 'kinds' then
    q.kind_options := posthaste.option_kinds(o -> 'kinds', q.kind_options, q.mode = 'at_most_once');
  end if;
  if o ? 'kinds' or b ? 'max' then
    select k.key, k.value into v_kind, v_given from jsonb_each(q.kind_options) k
     where not k.value ? 'max' and make_interval(secs => (k.value ->> 'base')::float8) > q.backoff_max order by k.key limit 1;
    if found then
      raise exception using errcode = 'PH400', column = 'kinds', hint = 'also set the backoff.max of the kind',
        message = format('option ''kinds'', kind %L: its backoff.base (%s s) is above the backoff.max of the queue (%s s), which would bound it',
          v_kind, v_given ->> 'base', trim_scale(extract(epoch from q.backoff_max)));
    end if;
  end if;
  if o ? 'owner' then
    q.owner := posthaste.option_text(o, 'owner');
    if q.owner is not null then
      perform posthaste.check_name(q.owner, 'owner', 'owner');
    end if;
  end if;
  return q;
end $$;
