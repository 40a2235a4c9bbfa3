-- posthaste.dead_found: the messages with dead letters that match a filter, newest first.
-- Arguments: the filter; ids (null: any); only ids below before; the maximum number.
-- Returns: the ids, descending. cut_at: it looked at 10,000 letters and stopped: these are all
-- down to that id.
-- It scans by the first of these that is given: ids, reference, key, a term or times of death
-- that at most 10,000 letters have, kind of a queue, the queue, all. It checks the rest of the
-- filter for each letter. Each scan uses one index, which its order by determines.
-- Reads: dead_letter_entries.
create or replace function posthaste.dead_found(f posthaste.dead_filter, p_ids bigint[], p_before bigint, p_max int, out message_ids bigint[], out cut_at bigint)
language plpgsql stable
set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set enable_sort = off set enable_incremental_sort = off set jit = off set max_parallel_workers_per_gather = 0 as $$
declare
  v_before bigint := coalesce(p_before, 9223372036854775807);
  v_ids bigint[] := p_ids;
  v_column text := case when f.reference is not null then 'reference' when f.key is not null then 'key' end;
  v_value text := coalesce(f.reference, f.key);
  c_of_ids constant text := 'select d.message_id, posthaste.dead_matches(d, $1), true from posthaste.dead_letter_entries d
                              where d.message_id = any ($2) and d.message_id < $3 order by d.message_id desc';
  v_queues int[];
  v_queue int;
  v_sql text;
  v_id bigint;
  v_last bigint;
  v_like boolean;
  v_there boolean;
  v_looked int := 0;
begin
  message_ids := '{}';
  if v_ids is null and v_column is null and f.term is not null then
    v_ids := posthaste.dead_termed(f.term);
  end if;
  if v_ids is null and v_column is null and (f.died_from is not null or f.died_before is not null) then
    v_ids := array(select d.message_id from posthaste.dead_letter_entries d
                    where d.died_at >= coalesce(f.died_from, '-infinity') and d.died_at < coalesce(f.died_before, 'infinity')
                    order by d.died_at limit 10001);
    if cardinality(v_ids) > 10000 then
      v_ids := null;
    end if;
  end if;
  if v_ids is null and v_column is null and f.kind is not null and f.queue_id is not null then
    v_column := 'kind';
    v_value := f.kind;
  end if;
  if v_ids is not null then
    v_sql := c_of_ids;
  elsif v_column is not null then
    -- By comparing rows, because with equal signs another index would give the same order;
    -- and without a lower end, which the loops below check: in PostgreSQL 14 a comparison of
    -- rows ends with the queue, and not with the value.
    v_queues := array(select q.id from posthaste.queue_settings q where q.dropped_at is null and (f.queue_id is null or q.id = f.queue_id));
    v_sql := format('from posthaste.dead_letter_entries d where (d.queue_id, d.%1$I, d.message_id) < (%%s, $5, $3) and d.%1$I is not null
                      order by d.queue_id desc, d.%1$I desc, d.message_id desc', v_column);
    -- The queues that have any.
    execute format('select array(select q.id from unnest($4) q (id) cross join lateral (select d.queue_id, d.%I as value %s limit 1) d where d.queue_id = q.id and d.value = $5)',
      v_column, format(v_sql, 'q.id')) into v_queues using f, v_ids, v_before, v_queues, v_value;
    v_sql := format('select d.message_id, posthaste.dead_matches(d, $1), d.queue_id = $4[1] and d.%I = $5 %s', v_column, format(v_sql, '$4[1]'));
    if cardinality(v_queues) <> 1 then
      v_ids := '{}';
      foreach v_queue in array v_queues loop
        v_looked := 0;
        for v_id, v_like, v_there in execute v_sql using f, v_ids, v_before, array[v_queue], v_value loop
          exit when not v_there or v_looked > 10000;
          v_looked := v_looked + 1;
          v_ids := v_ids || v_id;
        end loop;
      end loop;
      v_looked := 0;
      v_sql := c_of_ids;
    end if;
  elsif f.queue_id is not null then
    v_queues := array[f.queue_id];
    v_sql := 'select d.message_id, posthaste.dead_matches(d, $1), true from posthaste.dead_letter_entries d
               where (d.queue_id, d.message_id) < ($4[1], $3) and (d.queue_id, d.message_id) > ($4[1], 0) order by d.queue_id desc, d.message_id desc';
  else
    v_sql := 'select d.message_id, posthaste.dead_matches(d, $1), true from posthaste.dead_letter_entries d where d.message_id < $3 order by d.message_id desc';
  end if;
  for v_id, v_like, v_there in execute v_sql using f, v_ids, v_before, v_queues, v_value loop
    exit when not v_there;
    if v_id is distinct from v_last then
      exit when cardinality(message_ids) >= p_max;
      if v_looked >= 10000 then
        cut_at := v_last;
        exit;
      end if;
      v_last := v_id;
    end if;
    v_looked := v_looked + 1;
    if v_like and message_ids[cardinality(message_ids)] is distinct from v_id then
      message_ids := message_ids || v_id;
    end if;
  end loop;
end $$;
