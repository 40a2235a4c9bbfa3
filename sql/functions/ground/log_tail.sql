-- posthaste.log_tail: the last whole lines of a log that fit into a number of bytes.
create or replace function posthaste.log_tail(p_log text, p_bytes int)
returns text language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
  v_log bytea := convert_to(p_log, 'UTF8');
  v_over int := octet_length(v_log) - greatest(p_bytes, 0);
  v_end int;
begin
  if v_over <= 0 then
    return p_log;
  end if;
  -- After the first end of a line at or behind the cut.
  v_log := substring(v_log from v_over);
  v_end := position('\x0a'::bytea in v_log);
  return case when v_end = 0 then '' else convert_from(substring(v_log from v_end + 1), 'UTF8') end;
end $$;
