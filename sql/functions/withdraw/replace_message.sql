-- posthaste.replace_message: replaces the content of a waiting message by that of another that
-- is being sent with the same unique key.
-- Arguments: the message that waits; the new content, with its due time; the option unique, of
-- which max_delay bounds the due time, from the time when the message was sent on.
-- Returns: null if it was replaced, else its state.
-- Errors: as posthaste.hold_message; PH400 in an ordered queue. Locks, inserts: as
-- posthaste.put_again.
create or replace function posthaste.replace_message(p_id bigint, p_content posthaste.entries_other, p_unique jsonb)
returns text language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_refused record;
begin
  v_refused := posthaste.rewrite(p_id, p_content, coalesce(p_content.due_at, clock_timestamp()), (p_unique ->> 'max_delay')::double precision);
  return v_refused.state;
exception when sqlstate 'PH404' then
  return 'done';
end $$;
