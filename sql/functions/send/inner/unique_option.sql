-- posthaste.unique_option: checks the option unique of a message.
-- Arguments: true, or an object: key (at most 255 bytes; absent: by kind and payload), until
-- (started, finished or resolved), exists (keep or replace), max_delay (an interval, or seconds
-- as a number).
-- Returns: the object with its defaults, max_delay in seconds. Errors: PH400, PH413.
create or replace function posthaste.unique_option(p_unique jsonb)
returns jsonb language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
  v_key text;
  v_until text;
  v_exists text;
  v_most double precision;
begin
  if p_unique = 'true' then
    p_unique := '{}';
  elsif jsonb_typeof(p_unique) <> 'object' then
    raise exception using errcode = 'PH400', column = 'unique', message = 'option ''unique'' must be true or an object', hint = 'give it a key, such as report-7, or true for a hash of kind and payload';
  end if;
  perform posthaste.check_options(p_unique, array['key', 'until', 'exists', 'max_delay'], '{}');
  v_key := nullif(posthaste.option_text(p_unique, 'key'), '');
  v_until := coalesce(posthaste.option_text(p_unique, 'until'), 'finished');
  v_exists := coalesce(posthaste.option_text(p_unique, 'exists'), 'keep');
  v_most := case when jsonb_typeof(p_unique -> 'max_delay') = 'number' then least((p_unique ->> 'max_delay')::numeric, 9e12)::double precision
                 else extract(epoch from posthaste.option_interval(p_unique, 'max_delay')) end;
  if octet_length(v_key) > 255 then
    raise exception using errcode = 'PH413', column = 'unique', message = 'the unique key is over 255 bytes';
  elsif v_until not in ('started', 'finished', 'resolved') then
    raise exception using errcode = 'PH400', column = 'unique', message = format('until must be started, finished or resolved, got %L', v_until);
  elsif v_exists not in ('keep', 'replace') then
    raise exception using errcode = 'PH400', column = 'unique', message = format('exists must be keep or replace, got %L', v_exists);
  elsif v_most is not null and (v_exists <> 'replace' or not (v_most > 0 and v_most < 9e12)) then
    raise exception using errcode = 'PH400', column = 'unique', message = 'max_delay must be above zero, and needs exists: replace';
  end if;
  return jsonb_strip_nulls(jsonb_build_object('key', v_key, 'until', v_until, 'exists', v_exists, 'max_delay', v_most));
end $$;
