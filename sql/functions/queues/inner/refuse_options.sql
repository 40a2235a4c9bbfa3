-- posthaste.refuse_options: refuses to create a queue that exists with other options.
-- Arguments: its settings; those of a new queue; the options, of which only the named ones
-- must be equal. A burst that is not named matches any, and so do options of kinds that are not
-- named.
-- Errors: PH409, with both values of each option that differs.
create or replace function posthaste.refuse_options(a posthaste.queue_settings, b posthaste.queue_settings, o jsonb)
returns void language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_changes jsonb;
  v_fixed text[];
begin
  b.burst := case when b.rate = a.rate and o #>> '{rate_limit,burst}' is null then a.burst else b.burst end;
  b.key_burst := case when b.key_rate = a.key_rate and o #>> '{key_rate_limit,burst}' is null then a.key_burst else b.key_burst end;
  b.kind_options := case when o ? 'kinds' then posthaste.option_kinds(o -> 'kinds', a.kind_options, a.mode = 'at_most_once') end;
  select jsonb_object_agg(c.key, c.value) into v_changes
    from jsonb_each(posthaste.option_changes(a, b)) c
   where case when split_part(c.key, '.', 2) = '' or jsonb_typeof(o -> 'backoff') = 'null' then o ? split_part(c.key, '.', 1)
              else o -> 'backoff' ? split_part(c.key, '.', 2) end;
  if v_changes is null then
    return;
  end if;
  v_fixed := array(select f.name from posthaste.fixed_options(a, b) f);
  raise exception using errcode = 'PH409', column = 'name',
    message = format('queue %L exists with different options: %s', a.name,
      (select string_agg(format('%s is %s, requested %s', c.key, coalesce(c.value ->> 'old', 'none'), coalesce(c.value ->> 'new', 'none'))
                         || case when c.key = any (v_fixed) then ' (it cannot change)' else '' end, '; ' order by c.key) from jsonb_each(v_changes) c)),
    hint = format('change options with posthaste.update_queue(%L, …)', a.name);
end $$;
