-- posthaste.doctor_plans: whether the hot statements can still get their plans. Functions bring
-- their own settings, and need every index of the ring, usable. Last, the shapes of the hottest
-- statements are planned under the same settings: whatever the cause, none may read a whole slot
-- or sort it.
-- Reads: pg_index, pg_settings, positions.
create or replace function posthaste.doctor_plans()
returns table ("check" text, level text, message text, hint text, queue text, subscription text) language plpgsql volatile
set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set jit = off as $$
declare
  v_slot bigint;
  v_plan jsonb;
  h record;
begin
  return query
    select 'plans', 'fault', format('index %s cannot be used: statements read whole tables instead', i.indexrelid::regclass),
           format('reindex index %s', i.indexrelid::regclass), null::text, null::text
      from pg_index i join pg_class c on c.oid = i.indexrelid
     where c.relnamespace = 'posthaste'::regnamespace and not (i.indisvalid and i.indisready)
     order by 3;
  return query
    select 'plans', 'fault', format('table %s lacks the index %s: statements read the whole table instead', t.inhrelid::regclass, p.indexrelid::regclass),
           format('create it with the definition of %s', p.indexrelid::regclass), null::text, null::text
      from pg_index p join pg_class c on c.oid = p.indexrelid and c.relkind = 'I' and c.relnamespace = 'posthaste'::regnamespace
      join pg_inherits t on t.inhparent = p.indrelid
     where not exists (select from pg_inherits y join pg_index k on k.indexrelid = y.inhrelid where y.inhparent = p.indexrelid and k.indrelid = t.inhrelid)
     order by 3 limit 100;
  return query
    select 'plans', 'warning', format('%s is off: statements do not get their intended plans', s.name), format('turn %s on, at least for this database: alter database %I set %1$s = on', s.name, current_database()), null::text, null::text
      from pg_settings s
     where s.name in ('enable_indexscan', 'enable_indexonlyscan', 'enable_bitmapscan', 'enable_nestloop', 'enable_partition_pruning') and s.reset_val = 'off'
     order by s.name;
  select posthaste.slot_of(p.last_value) into v_slot from posthaste.positions p;
  for h in
    select x.what, format(x.sql, v_slot) as sql from (values
      ('the claim of fresh messages', 'select xid, pos from posthaste.entries where queue_id = 1 and lane = 0 and plain and (xid, pos) > (''3''::xid8, 0) and ((pos >> 22) & 15) = %s order by xid, pos limit 100'),
      ('the claim of newly visible messages', 'select xid, pos from posthaste.entries where queue_id = 1 and lane = 0 and due_at is not null and (xid, pos) > (''3''::xid8, 0) and ((pos >> 22) & 15) = %s order by xid, pos limit 100'),
      ('the claim of due messages', 'select due_at, pos from posthaste.entries where queue_id = 1 and lane = 0 and due_at is not null and (due_at, pos) > (''epoch''::timestamptz, 0) and ((pos >> 22) & 15) = %s order by due_at, pos limit 100'),
      ('the claim of keyed messages', 'select ord, pos from posthaste.entries where queue_id = 1 and lane = 0 and due_at is null and ord is not null and (ord, pos) > (''3''::xid8, 0) and ((pos >> 22) & 15) = %s order by ord, pos limit 100'),
      ('the search for a reference or a term', 'select pos from posthaste.words where slot = %s and word = ''r'' and queue_id = 1 and message_id < 1 order by message_id desc limit 100'),
      ('the search for later attempts', 'select pos from posthaste.entries where message_id = 1 and ((pos >> 22) & 15) = %s'),
      ('a reader''s cursor', 'select id from posthaste.claims where reader = 1 and slot = %s order by reader, seq desc limit 1'),
      ('the search for a worker''s claims', 'select id from posthaste.claims where holder = 1 and number between 1 and 2 and slot = %s order by number'),
      ('settling', 'select bits from posthaste.settlements where slot = %s and claim = 1 and part = 0 order by number desc limit 1')
    ) x (what, sql)
  loop
    execute 'explain (format json) ' || h.sql into v_plan;
    return query
      select 'plans', 'warning', format('%s is planned with a %s on %s: it reads more than it needs', h.what, n ->> 'Node Type', coalesce(n ->> 'Relation Name', 'its rows')),
             E'check that this table has all indexes of the migrations, and which settings of this database or user change plans (\\drds in psql)', null::text, null::text
        from jsonb_path_query(v_plan, '$.**{0 to 20} ? (@."Node Type" == "Seq Scan" || @."Node Type" == "Bitmap Heap Scan" || @."Node Type" == "Sort" || @."Node Type" == "Incremental Sort")') n
       limit 1;
  end loop;
end $$;
