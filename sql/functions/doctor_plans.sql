-- posthaste.doctor_plans: can the hot statements still have their plans? Functions
-- bring their own settings, and need every index of the ring, usable.
-- Reads: pg_index, pg_settings.
create or replace function posthaste.doctor_plans()
returns table (level text, message text, hint text, queue text, subscription text) language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
  return query
    select 'fault', format('index %s cannot be used: statements read whole tables instead', i.indexrelid::regclass),
           format('reindex index %s', i.indexrelid::regclass), null::text, null::text
      from pg_index i join pg_class c on c.oid = i.indexrelid
     where c.relnamespace = 'posthaste'::regnamespace and not (i.indisvalid and i.indisready)
     order by 2;
  return query
    select 'fault', format('table %s has no index like %s: statements read all of it instead', t.inhrelid::regclass, p.indexrelid::regclass),
           format('create it as %s says', p.indexrelid::regclass), null::text, null::text
      from pg_index p join pg_class c on c.oid = p.indexrelid and c.relkind = 'I' and c.relnamespace = 'posthaste'::regnamespace
      join pg_inherits t on t.inhparent = p.indrelid
     where not exists (select from pg_inherits y join pg_index k on k.indexrelid = y.inhrelid where y.inhparent = p.indexrelid and k.indrelid = t.inhrelid)
     order by 2 limit 100;
  return query
    select 'warning', format('%s is off: statements get other plans than they were made for', s.name), 'turn it on, for this database at least', null::text, null::text
      from pg_settings s
     where s.name in ('enable_indexscan', 'enable_indexonlyscan', 'enable_bitmapscan', 'enable_nestloop', 'enable_partition_pruning') and s.reset_val = 'off'
     order by s.name;
end $$;
