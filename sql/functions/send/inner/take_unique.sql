-- posthaste.take_unique: gives unique keys to messages that are being sent. A message whose key
-- another one holds is not sent, and gets that one's id; or it replaces the content of that one,
-- if no subscription was handed it. Of several messages with one key in a call the first is sent.
-- Arguments: parallel arrays of the messages, null elements for those without a unique key: the
-- keys, as posthaste.unique_keys has them; the options, as posthaste.unique_option returns them;
-- contents, with queue, lane and due time. ids: their positions; fresh: the numbers of those that
-- are to be stored.
-- Returns: ids and fresh without those that are not sent; told: for each message null if it is
-- stored, 'replaced', or the state of the message that holds its key.
-- Errors: PH400, also for replace above READ COMMITTED; as posthaste.hold_message.
-- Locks: as posthaste.hold_readers for the messages that are to be replaced, then the rows of
-- keys that are taken, in ascending order. A sender waits for a transaction that is taking the
-- same key and continues with its result. Senders with a key that is held do not wait for each
-- other.
-- In REPEATABLE READ and SERIALIZABLE a key that was free and was taken since the snapshot is a
-- serialization failure (40001), as with any row.
-- Inserts, updates: unique_keys. Inserts: unique_past; as posthaste.put_again.
create or replace function posthaste.take_unique(p_keys text[], p_options jsonb[], p_contents posthaste.entries_other[],
  inout ids bigint[], inout fresh int[], out told text[])
language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  k record;
  r posthaste.unique_keys;
  v_state text;
  v_new bigint;
  v_replaced boolean;
  v_ids bigint[];
begin
  told := array_fill(null::text, array[cardinality(ids)]);
  v_ids := array(select u.message_id from generate_series(1, cardinality(ids)) n
                   join posthaste.unique_keys u on u.queue_id = (p_contents[n]).queue_id and u.key = p_keys[n]
                  where p_options[n] ->> 'exists' = 'replace');
  if v_ids <> '{}' then
    if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
      raise exception using errcode = 'PH400', column = 'unique', message = format('replacing a message needs READ COMMITTED, and this transaction is %s', upper(current_setting('transaction_isolation'))),
        hint = 'send it in a READ COMMITTED transaction, or with exists: keep';
    end if;
    -- All before the first key: otherwise two calls could each wait for what the other has.
    perform posthaste.hold_readers(posthaste.first_heads(v_ids) || posthaste.other_heads(v_ids));
  end if;
  for k in
    with wanted as (
      select (p_contents[n]).queue_id as queue, p_keys[n] as key, min(n) as first, array_agg(n order by n) as all_of_it,
             bool_or(p_options[n] ->> 'exists' = 'replace') as replaces
        from generate_series(1, cardinality(ids)) n where p_keys[n] is not null
       group by 1, 2
    ), found as (
      -- Without a lock: senders with a key that is held would all wait for each other.
      select w.*, u.message_id, u.until, u.attempt
        from wanted w left join lateral (select * from posthaste.unique_keys u where u.queue_id = w.queue and u.key = w.key offset 0) u on true
    )
    select f.*, h.state
      from found f
      left join (select x.*
                   from (select array_agg(f.message_id) as ids, array_agg(f.until) as untils, array_agg(f.attempt) as attempts from found f where f.message_id is not null) a
                  cross join lateral posthaste.unique_held(a.ids, a.untils, a.attempts) x) h on h.message_id = f.message_id
     order by f.queue, f.key
  loop
    v_new := ids[k.first];
    v_replaced := false;
    v_state := k.state;
    r := row(k.queue, k.key, k.message_id, k.until, k.attempt);
    if k.replaces and cardinality(k.all_of_it) > 1 then
      raise exception using errcode = 'PH400', column = 'unique', message = format('messages %s and %s of one call have the same unique key, and would replace each other', k.first, k.all_of_it[2]),
        hint = 'send them in two calls';
    end if;
    loop
      if v_state is not null then
        exit when not k.replaces;
        v_replaced := posthaste.replace_message(r.message_id, p_contents[k.first], p_options[k.first]) is null;
        exit when v_replaced;
        -- Null if it was handed out meanwhile, or has ended: its key is free.
        v_state := (select h.state from posthaste.unique_held(array[r.message_id], array[r.until], array[r.attempt]) h);
        exit when v_state is not null;
      end if;
      insert into posthaste.unique_keys as u (queue_id, key, message_id, until, attempt)
      values (k.queue, k.key, v_new, p_options[k.first] ->> 'until', 1)
      on conflict (queue_id, key) do nothing;
      exit when found;
      -- It exists: another sender may have taken it meanwhile. Its state is read again under
      -- the lock, in a statement of its own, which sees what that sender committed.
      select * into r from posthaste.unique_keys u where u.queue_id = k.queue and u.key = k.key for update;
      continue when not found; -- upkeep has just forgotten it
      v_state := (select h.state from posthaste.unique_held(array[r.message_id], array[r.until], array[r.attempt]) h);
      continue when v_state is not null;
      -- A message that may become a dead letter, or is one, can be replayed and needs its key then.
      insert into posthaste.unique_past (message_id, queue_id, key, until)
      select r.message_id, r.queue_id, r.key, r.until
       where exists (select from posthaste.unique_held(array[r.message_id], array['resolved'], array[1::smallint]))
      on conflict do nothing;
      update posthaste.unique_keys u set message_id = v_new, until = p_options[k.first] ->> 'until', attempt = 1
       where u.queue_id = k.queue and u.key = k.key;
      exit;
    end loop;
    for i in 1..cardinality(k.all_of_it) loop
      if v_state is not null then
        told[k.all_of_it[i]] := case when v_replaced then 'replaced' else v_state end;
        ids[k.all_of_it[i]] := r.message_id;
      elsif i > 1 then
        told[k.all_of_it[i]] := case when (p_contents[k.first]).due_at is not null then 'scheduled' else 'ready' end;
        ids[k.all_of_it[i]] := v_new;
      end if;
    end loop;
  end loop;
  fresh := array(select n from unnest(fresh) n where told[n] is null);
end $$;
