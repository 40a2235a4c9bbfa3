-- posthaste.unique_again: gives unique keys back to dead letters that are being replayed.
-- Arguments: the messages. Returns: those whose key another message holds; they must not be
-- replayed.
-- Locks: the rows of their keys, in ascending order. Every key that is given is updated, so that
-- senders with older snapshots cannot take it too.
-- Updates, inserts: unique_keys, unique_past. Deletes: unique_past.
create or replace function posthaste.unique_again(p_ids bigint[])
returns setof bigint language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  k record;
  r posthaste.unique_keys;
  v_attempt smallint;
  v_given record := row(null::int, null::text);
begin
  for k in
    select x.message_id, x.queue_id, x.key, min(x.until) as until
      from (select u.message_id, u.queue_id, u.key, u.until from unnest(p_ids) i join posthaste.unique_keys u on u.message_id = i
            union all
            select z.message_id, z.queue_id, z.key, z.until from unnest(p_ids) i join posthaste.unique_past z on z.message_id = i) x
     group by 1, 2, 3 order by x.queue_id, x.key, x.message_id
  loop
    -- The one before in this call has the key.
    if (k.queue_id, k.key) = v_given then
      return next k.message_id;
      continue;
    end if;
    v_attempt := (select least(max(d.attempt) + 1, 32767) from posthaste.dead_letter_entries d where d.message_id = k.message_id);
    insert into posthaste.unique_keys (queue_id, key, message_id, until, attempt) values (k.queue_id, k.key, k.message_id, k.until, v_attempt)
    on conflict do nothing;
    if not found then
      select * into r from posthaste.unique_keys u where u.queue_id = k.queue_id and u.key = k.key for update;
      if r.message_id <> k.message_id and exists (select from posthaste.unique_held(array[r.message_id], array[r.until], array[r.attempt])) then
        return next k.message_id;
        continue;
      end if;
      insert into posthaste.unique_past (message_id, queue_id, key, until)
      select r.message_id, r.queue_id, r.key, r.until
       where r.message_id <> k.message_id and exists (select from posthaste.unique_held(array[r.message_id], array['resolved'], array[1::smallint]))
      on conflict do nothing;
      update posthaste.unique_keys u set message_id = k.message_id, until = k.until, attempt = v_attempt where u.queue_id = k.queue_id and u.key = k.key;
    end if;
    v_given := row(k.queue_id, k.key);
    delete from posthaste.unique_past z where z.message_id = k.message_id;
  end loop;
end $$;
