-- posthaste.cron_field: the values of one field of a cron line, as bits.
-- Arguments: the field's text in lower case; its name; the lowest and the highest value (7: the
-- week, whose end is its beginning); names of values from the lowest on, if it has any.
-- Returns: the bits. Errors: PH400 with the field spec. Tables: none.
create or replace function posthaste.cron_field(p_text text, p_what text, p_low int, p_high int, p_names text[])
returns bigint language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  v_bits bigint := 0;
  v_part text;
  v_from int;
  v_to int;
  v_step int;
  m text[];
  v_fault text;
  v_week boolean := p_high = 7; -- Sunday is 0 and 7, so that a range may end with it
  v_modulus int := case when v_week then 7 else 60 end;
begin
  foreach v_part in array string_to_array(p_text, ',') loop
    m := regexp_match(v_part, '^(?:([*])|([a-z]+|[0-9]{1,2})(?:-([a-z]+|[0-9]{1,2}))?)(?:/([0-9]{1,4}))?$');
    if m is null then
      v_fault := format('%L is not a value, range, step or *', v_part);
      exit;
    end if;
    v_step := coalesce(m[4]::int, 1);
    if m[1] is not null then
      v_from := p_low;
      v_to := p_high;
    else
      v_from := coalesce(p_low + array_position(p_names, m[2]) - 1, case when m[2] ~ '^[0-9]' then m[2]::int end);
      v_to := coalesce(p_low + array_position(p_names, m[3]) - 1, case when m[3] ~ '^[0-9]' then m[3]::int end);
      if v_from is null or m[3] is not null and v_to is null then
        v_fault := format('%L is not a name', case when v_from is null then m[2] else m[3] end);
        exit;
      elsif m[3] is null and m[4] is not null then
        v_fault := format('%L: a step needs * or a range before it', v_part);
        exit;
      end if;
      v_to := case when v_week and v_to = 0 and v_from > 0 then 7 else coalesce(v_to, v_from) end;
      if v_from < p_low or greatest(v_from, v_to) > p_high then
        v_fault := format('%L is not within %s to %s', v_part, p_low, p_high);
        exit;
      elsif v_to < v_from then
        v_fault := format('range %L goes backwards; write it as two', v_part);
        exit;
      end if;
    end if;
    if v_step < 1 then
      v_fault := format('%L: the step is zero', v_part);
      exit;
    end if;
    for i in 0..(v_to - v_from) / v_step loop
      v_bits := v_bits | (1::bigint << ((v_from + i * v_step) % v_modulus));
    end loop;
  end loop;
  if v_fault is not null or v_bits = 0 then
    raise exception using errcode = 'PH400', column = 'spec', message = format('%s of the cron line: %s', p_what, coalesce(v_fault, 'it is empty')),
      hint = 'five fields: minute, hour, day of the month, month, day of the week; for example ''30 2 * * mon-fri''';
  end if;
  return v_bits;
end $$;
