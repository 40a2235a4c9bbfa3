-- posthaste.forget_history: truncates the parts of the history in which all rows have expired.
-- A part that is being read is left for later.
-- Locks: ACCESS EXCLUSIVE on those parts, for 50 ms at most. Deletes from:
-- history_parts.
create or replace function posthaste.forget_history()
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp set lock_timeout = '50ms' as $$
declare
  v_part smallint;
begin
  for v_part in select h.part from posthaste.history_parts h where h.until <= clock_timestamp() order by h.part loop
    begin
      -- Its row first, in the same order as a writer: the part may have got a later end.
      delete from posthaste.history_parts h where h.part = v_part and h.until <= clock_timestamp();
      if found then
        execute format('truncate posthaste.history_%s', v_part);
      end if;
    exception when lock_not_available then
      null;
    end;
  end loop;
end $$;
