-- posthaste.option_attempts: the options max_attempts, timeout and backoff of a message or a kind,
-- as posthaste.attempt_options reads them; {} if none is given.
-- Errors: PH400 with the option's name.
create or replace function posthaste.option_attempts(p_options jsonb)
returns jsonb language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_backoff jsonb := coalesce(nullif(p_options -> 'backoff', 'null'), '{}');
begin
  if jsonb_typeof(v_backoff) <> 'object' then
    raise exception using errcode = 'PH400', column = 'backoff', message = 'option ''backoff'' must be an object with base and max';
  end if;
  perform posthaste.check_options(v_backoff, array['base', 'max'], '{}');
  return jsonb_strip_nulls(jsonb_build_object(
    'attempts', posthaste.option_int(p_options, 'max_attempts', 1, 1000), 'timeout', extract(epoch from posthaste.option_interval(p_options, 'timeout', 365)),
    'base', extract(epoch from posthaste.option_interval(v_backoff, 'base')), 'max', extract(epoch from posthaste.option_interval(v_backoff, 'max'))));
end $$;
