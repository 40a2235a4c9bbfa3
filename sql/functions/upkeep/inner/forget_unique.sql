-- posthaste.forget_unique: removes unique keys whose messages are finished and will not be
-- replayed, of at most 1,000 messages in each round of upkeep. posthaste.unique_swept has where
-- the next round continues.
-- Reads: as posthaste.message_states. Deletes: unique_keys, unique_past. Updates: unique_swept.
create or replace function posthaste.forget_unique()
returns void language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  v_from bigint := (select s.message_id from posthaste.unique_swept s);
  v_ids bigint[];
  v_gone bigint[];
begin
  v_ids := array(select x.message_id
                   from ((select u.message_id from posthaste.unique_keys u where u.message_id > v_from order by u.message_id limit 1000)
                         union all
                         (select z.message_id from posthaste.unique_past z where z.message_id > v_from order by z.message_id limit 1000)) x
                  order by 1 limit 1000);
  if v_ids = '{}' and v_from = 0 then
    return;
  end if;
  update posthaste.unique_swept s set message_id = case when cardinality(v_ids) < 1000 then 0 else v_ids[1000] end;
  v_gone := array(select i from unnest(v_ids) i
                  except select h.message_id from posthaste.unique_held(v_ids, array_fill('resolved'::text, array[cardinality(v_ids)]), array_fill(1::smallint, array[cardinality(v_ids)])) h);
  -- Not those that a sender is using again.
  delete from posthaste.unique_keys k
   where k.ctid = any (array(select u.ctid from unnest(v_gone) i join posthaste.unique_keys u on u.message_id = i for update of u skip locked));
  delete from posthaste.unique_past z where z.message_id = any (v_gone);
end $$;
