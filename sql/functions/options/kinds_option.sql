-- posthaste.kinds_option: the inverse of posthaste.option_kinds. Durations are texts of seconds.
create or replace function posthaste.kinds_option(p_kinds jsonb)
returns jsonb language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
  select jsonb_object_agg(k.key, jsonb_strip_nulls(jsonb_build_object(
           'max_attempts', k.value -> 'attempts', 'timeout', trim_scale((k.value ->> 'timeout')::numeric) || ' seconds',
           'backoff', case when k.value ?| '{base,max}' then jsonb_build_object(
             'base', trim_scale((k.value ->> 'base')::numeric) || ' seconds', 'max', trim_scale((k.value ->> 'max')::numeric) || ' seconds') end)))
    from jsonb_each(p_kinds) k
$$;
