-- posthaste.option_kinds: the options of kinds of a queue after its option kinds changes. Each
-- kind that is named gets the options that are given for it, and no others; one that is null or
-- has no options is removed.
-- Arguments: the option, an object by kind of objects with max_attempts, timeout and backoff, or
-- null for none; the options of kinds now; whether the queue is at-most-once.
-- Returns: the column kind_options of queue_settings.
-- Errors: PH400 of kinds.
create or replace function posthaste.option_kinds(p_option jsonb, p_has jsonb, p_once boolean)
returns jsonb language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_is jsonb := coalesce(p_has, '{}');
  v_kind text;
  v_given jsonb;
  v_hint text;
begin
  if jsonb_typeof(coalesce(p_option, 'null')) = 'null' then
    return null;
  elsif jsonb_typeof(p_option) <> 'object' then
    raise exception using errcode = 'PH400', column = 'kinds', message = format('option ''kinds'' must be an object by kind, got %s', jsonb_typeof(p_option)),
      hint = 'each kind has an object of max_attempts, timeout and backoff';
  end if;
  for v_kind, v_given in select k.key, nullif(k.value, 'null') from jsonb_each(p_option) k loop
    begin
      if v_kind = '' or octet_length(v_kind) > 255 then
        raise exception using errcode = 'PH400', message = 'a kind has 1 to 255 bytes';
      end if;
      if jsonb_typeof(v_given) <> 'object' then
        raise exception using errcode = 'PH400', message = format('its options must be an object, got %s', jsonb_typeof(v_given));
      end if;
      perform posthaste.check_options(v_given, array['max_attempts', 'timeout', 'backoff'], '{}');
      v_given := posthaste.option_attempts(v_given);
      if posthaste.attempt_fault(v_given, p_once) is not null then
        raise exception using errcode = 'PH400', message = case when p_once and v_given ?| '{attempts,base,max}'
          then 'an at-most-once queue never retries: leave out max_attempts and backoff'
          else 'backoff must not be negative, and its max must be at least its base and at most 365 days' end;
      end if;
    exception when sqlstate 'PH400' then
      get stacked diagnostics v_hint = pg_exception_hint;
      raise exception using errcode = 'PH400', column = 'kinds', message = format('option ''kinds'', kind %L: %s', v_kind, sqlerrm),
        hint = coalesce(nullif(v_hint, ''), 'a kind has max_attempts, timeout and backoff');
    end;
    v_is := case when v_given = '{}' then v_is - v_kind else v_is || jsonb_build_object(v_kind, v_given) end;
  end loop;
  if (select count(*) from jsonb_object_keys(v_is)) > 100 then
    raise exception using errcode = 'PH400', column = 'kinds', message = 'at most 100 kinds can have options';
  end if;
  return nullif(v_is, '{}');
end $$;
