-- posthaste.history_ids: the newest messages of given queues in the history, below an id, that
-- have a reference, a key, a term, as far as these are given.
-- Part by part, each by one index, which its order by determines; by term all messages of a
-- part with the term are read.
-- Reads: history_parts, history.
create or replace function posthaste.history_ids(p_queues int[], p_reference text, p_key text, p_term text, p_before bigint, p_max int)
returns bigint[] language plpgsql stable
set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
set enable_sort = off set enable_incremental_sort = off set jit = off set max_parallel_workers_per_gather = 0 as $$
declare
  v_part smallint;
  v_column text := case when p_reference is not null then 'reference' when p_key is not null then 'key' end;
  v_sql text;
  v_ids bigint[];
  v_all bigint[] := '{}';
begin
  if v_column is not null then
    v_sql := format('select array(select h.message_id from unnest($1) q (id) cross join lateral (
               select distinct on (h.queue_id, h.%1$I, h.message_id) h.message_id from posthaste.history_%%1$s h
                where (h.queue_id, h.%1$I, h.message_id) < (q.id, $2, $3) and (h.queue_id, h.%1$I, h.message_id) > (q.id, $2, 0) and h.%1$I is not null
                  and ($4 is null or h.terms @> array[$4]) and ($6 is null or h.key = $6) and h.expires_at > clock_timestamp()
                order by h.queue_id desc, h.%1$I desc, h.message_id desc limit $5) h)', v_column);
  elsif p_term is not null then
    v_sql := 'select array(select distinct h.message_id from (select * from posthaste.history_%1$s h where h.terms @> array[$4] offset 0) h
               where h.queue_id = any ($1) and h.message_id < $3 and h.expires_at > clock_timestamp() order by h.message_id desc limit $5)';
  else
    v_sql := 'select array(select h.message_id from unnest($1) q (id) cross join lateral (
               select distinct on (h.queue_id, h.message_id) h.message_id from posthaste.history_%1$s h
                where (h.queue_id, h.message_id) < (q.id, $3) and (h.queue_id, h.message_id) > (q.id, 0) and h.part = %1$s and h.expires_at > clock_timestamp()
                order by h.queue_id desc, h.message_id desc limit $5) h)';
  end if;
  for v_part in select h.part from posthaste.history_parts h where h.until > clock_timestamp() order by h.until desc loop
    execute format(v_sql, v_part) into v_ids using p_queues, coalesce(p_reference, p_key), coalesce(p_before, 9223372036854775807), p_term, p_max, p_key;
    v_all := v_all || v_ids;
  end loop;
  return array(select distinct x from unnest(v_all) x order by x desc limit p_max);
end $$;
