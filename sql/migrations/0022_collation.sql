-- compatible
-- Text is compared by its bytes, and not as the language of the database has it: an upgrade
-- of the C library or of ICU changes that order, and what an index has stored by the old one
-- is found no more. Each table once, for its indexes are built anew; rows stay where they are.
do $$
declare
  t record;
  v_detail text;
  v_ours text[] := (select a.objects from posthaste.applied a); -- null or empty where all is made just now
begin
  -- Views are in the way, and functions that are stored as a tree and not as text. They are
  -- made anew from their files, after this. What users made stays, and is named by the error.
  update posthaste.applied set hash = '';
  for t in select string_agg(c.oid::regclass::text, ', ') as names from pg_class c
            where c.relnamespace = 'posthaste'::regnamespace and c.relkind = 'v'
               and (coalesce(cardinality(v_ours), 0) = 0 or (select o.type || ' ' || o.identity from pg_identify_object('pg_class'::regclass, c.oid, 0) o) = any (v_ours)) having count(*) > 0 loop
    execute format('drop view %s', t.names);
  end loop;
  for t in select distinct p.oid::regprocedure as name from pg_proc p join pg_depend d on d.classid = 'pg_proc'::regclass and d.objid = p.oid
            where p.pronamespace = 'posthaste'::regnamespace and d.refclassid = 'pg_class'::regclass and d.refobjsubid > 0
               and (coalesce(cardinality(v_ours), 0) = 0 or (select o.type || ' ' || o.identity from pg_identify_object('pg_proc'::regclass, p.oid, 0) o) = any (v_ours)) loop
    execute format('drop function %s', t.name);
  end loop;
  for t in
    select c.oid::regclass as name, string_agg(format('alter column %I type %s collate "C"', a.attname, format_type(a.atttypid, a.atttypmod)), ', ' order by a.attnum) as columns
      from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
     where c.relnamespace = 'posthaste'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
       and c.relname not in ('migrations', 'applied') -- this very session has statements of them, and nothing sorts by their text
       and a.attcollation = '"default"'::regcollation
     group by c.oid order by c.oid
  loop
    begin
      execute format('alter table %s %s', t.name, t.columns);
    exception when feature_not_supported then
      get stacked diagnostics v_detail = pg_exception_detail;
      raise exception using errcode = 'PH503', message = format('columns of %s must change, and something that is not Posthaste''s uses them: %s', t.name, v_detail),
        hint = 'drop that, migrate, and make it anew';
    end;
  end loop;
  -- In the order in which they were made, by which the planner chooses among equals.
  for t in select i.indexrelid::regclass as name, pg_get_indexdef(i.indexrelid) as definition from pg_index i
            where i.indrelid = 'posthaste.keys'::regclass and '"C"'::regcollation <> all (i.indcollation::oid[]) order by i.indexrelid loop
    execute format('drop index %s', t.name);
    execute t.definition;
  end loop;
  -- Which partitions' indexes lose.
  for s in 0..15 loop
    execute format('alter index posthaste.entries_%s_terms_idx set (gin_pending_list_limit = 256)', s);
  end loop;
end $$;
