-- posthaste.option_changes: the options in which two settings of a queue differ.
-- Returns: an object of the options, each with its old and new value; {} if there are none.
-- Durations are texts.
create or replace function posthaste.option_changes(a posthaste.queue_settings, b posthaste.queue_settings)
returns jsonb language sql stable set search_path = pg_catalog, pg_temp set intervalstyle = postgres as $$
  select coalesce(jsonb_object_agg(x.name, jsonb_build_object('old', x.old, 'new', x.new)), '{}')
    from (
      select * from (values
        ('max_attempts', to_jsonb(a.max_attempts), to_jsonb(b.max_attempts)), ('max_payload', to_jsonb(a.max_payload), to_jsonb(b.max_payload)),
        ('lanes', to_jsonb(a.width), to_jsonb(b.width)), ('mode', to_jsonb(a.mode), to_jsonb(b.mode)),
        ('retain_payload', to_jsonb(a.retain_payload), to_jsonb(b.retain_payload)), ('ordered', to_jsonb(a.ordered), to_jsonb(b.ordered)),
        ('on_dead', to_jsonb(a.on_dead), to_jsonb(b.on_dead)), ('fair', to_jsonb(a.fair), to_jsonb(b.fair)),
        ('concurrency', to_jsonb(a.concurrency), to_jsonb(b.concurrency)), ('key_concurrency', to_jsonb(a.key_concurrency), to_jsonb(b.key_concurrency)),
        ('rate_limit', posthaste.rate_option(a.rate, a.burst), posthaste.rate_option(b.rate, b.burst)),
        ('key_rate_limit', posthaste.rate_option(a.key_rate, a.key_burst), posthaste.rate_option(b.key_rate, b.key_burst)),
        ('kinds', posthaste.kinds_option(a.kind_options), posthaste.kinds_option(b.kind_options)),
        ('owner', to_jsonb(a.owner), to_jsonb(b.owner))) v (name, old, new)
      union all
      -- 24 hours and a day are the same.
      select t.name, to_jsonb(justify_hours(make_interval(secs => extract(epoch from t.old)::float8))::text), to_jsonb(justify_hours(make_interval(secs => extract(epoch from t.new)::float8))::text)
        from (values ('backoff.base', a.backoff_base, b.backoff_base), ('backoff.max', a.backoff_max, b.backoff_max), ('timeout', a.timeout, b.timeout),
                     ('max_age', a.max_age, b.max_age), ('retention', a.retention, b.retention)) t (name, old, new)) x
   where x.old is distinct from x.new $$;
