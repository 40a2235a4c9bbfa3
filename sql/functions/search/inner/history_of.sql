-- posthaste.history_of: the rows of messages in the history that have not expired.
-- Reads: history_parts, history.
create or replace function posthaste.history_of(p_ids bigint[])
returns setof posthaste.history language plpgsql stable rows 10
set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off set max_parallel_workers_per_gather = 0 as $$
declare
  v_part smallint;
begin
  for v_part in select h.part from posthaste.history_parts h where h.until > clock_timestamp() loop
    return query execute format('select h.* from posthaste.history_%s h where h.message_id = any ($1) and h.expires_at > clock_timestamp()', v_part) using p_ids;
  end loop;
end $$;
