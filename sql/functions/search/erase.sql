-- posthaste.erase: erases the content of messages that have a term, such as a person's address.
-- Queue, kind, states, workers and times stay; payload, headers, key, reference, terms, error
-- texts, receipts and unique keys are removed.
-- Dead letters and the history are blanked at once. Rows of the ring are never changed: the
-- content of settled messages there is not shown any more, is not copied to the history, and
-- disappears with its slot. A message that is still to be delivered, to any subscription, stays
-- everywhere and is returned as pending: erase again when it is settled.
-- Arguments: the term; by: the actor to record (the record has only the term's SHA-256); it
-- processes the newest messages below before, at most max, 1 to 10,000, and the setting
-- posthaste.list_before has the id to continue with, empty at the end.
-- Returns: one row per message: its id, queue, and outcome: erased or pending.
-- Errors: PH400, also unless READ COMMITTED, PH413. Locks: the maintenance key.
-- Updates: dead_letter_entries, history. Inserts: erased, action_records. Deletes: unique_keys,
-- unique_past.
create or replace function posthaste.erase(term text, by text default session_user, before bigint default null, max bigint default 1000)
returns table (message_id bigint, queue text, outcome text)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
  v_term text := erase.term;
  v_max int := case when erase.max between 1 and 10000 then erase.max end;
  v_by text := coalesce(erase.by, session_user);
  v_queues int[] := array(select q.id from posthaste.queue_settings q);
  v_now timestamptz := clock_timestamp();
  v_hash text;
  v_heads posthaste.head[];
  v_ids bigint[];
  v_kept bigint[];
  v_bottom bigint;
  v_pending bigint[];
  v_gone bigint[];
  v_part smallint;
begin
  perform set_config('posthaste.list_before', '', true);
  if coalesce(v_term, '') = '' then
    raise exception using errcode = 'PH400', column = 'term', message = 'term must not be empty';
  elsif octet_length(v_term) > 255 then
    raise exception using errcode = 'PH413', column = 'term', message = 'term is over 255 bytes';
  elsif v_max is null then
    raise exception using errcode = 'PH400', column = 'limit', message = format('a call erases 1 to 10000 messages, not %s', erase.max),
      hint = 'use several calls';
  end if;
  -- Messages that upkeep copies to the history meanwhile would not be blanked.
  perform posthaste.read_committed('erase');
  perform pg_advisory_xact_lock(posthaste.lock_key(6, 0));
  v_hash := encode(sha256(convert_to(v_term, 'UTF8')), 'hex');
  v_heads := array(select h from posthaste.named_heads(v_queues, null, v_term, erase.before, v_max) h);
  v_ids := array(select distinct x.message_id from unnest(v_heads) x order by 1 desc);
  v_kept := posthaste.history_ids(v_queues, null, null, v_term, erase.before, v_max);
  v_bottom := greatest(v_ids[v_max], v_kept[v_max]);
  v_ids := array(select distinct x from unnest(v_ids || v_kept) x where x >= coalesce(v_bottom, 0) order by x);
  -- Messages that were erased in the ring already still have their term there.
  v_ids := array(select x from unnest(v_ids) x where (select z.at from posthaste.erased z where z.message_id = x order by z.message_id limit 1) is null);
  -- Against replaying and discarding, in their order.
  perform from posthaste.dead_letter_entries d where d.message_id = any (v_ids) order by d.message_id, d.subscription for update;
  -- In one statement: a message settled between two would be found in neither place. "is
  -- true" keeps the planner from joining, which may compare each with each.
  v_pending := array(select distinct m.message_id
                       from posthaste.message_rows(
                              array(select x from unnest(v_heads) x where (x.message_id in (select i from unnest(v_ids) i)) is true)
                              || posthaste.other_heads(v_ids), v_ids, false) m
                       join posthaste.queue_settings q on q.id = m.queue_id
                      where m.state in ('scheduled', 'ready', 'running', 'retrying') and q.dropped_at is null);
  -- A message that one subscription has still to get stays for all.
  v_gone := array(select x from unnest(v_ids) x where (x in (select p from unnest(v_pending) p)) is not true);
  update posthaste.dead_letter_entries d
     set payload = '', headers = null, key = null, reference = null, terms = null, trace = null, error = 'erased', story = posthaste.bare_story(d.story), erased_at = v_now
   where d.message_id = any (v_gone) and d.erased_at is null;
  for v_part in select h.part from posthaste.history_parts h order by h.part loop
    execute format('update posthaste.history_%s h set payload = null, headers = null, key = null, reference = null, terms = null,
                           attempts = posthaste.bare_story(h.attempts), erased_at = $2 where h.message_id = any ($1) and h.erased_at is null', v_part)
      using v_gone, v_now;
  end loop;
  -- An erased dead letter is never replayed, and so needs no key. A key that a sender is using becomes
  -- that of another message.
  delete from posthaste.unique_keys k
   where k.ctid = any (array(select u.ctid from unnest(v_gone) i join posthaste.unique_keys u on u.message_id = i for update of u skip locked));
  delete from posthaste.unique_past z where z.message_id = any (v_gone);
  insert into posthaste.erased (message_id, pos, at)
  select x, (select last_value from posthaste.positions), v_now from unnest(v_gone) x
  on conflict do nothing;
  return query
    with found as materialized (
      select x.id, max(x.queue_id) as queue_id, case when bool_or(x.pending) then 'pending' else 'erased' end as became
        from (select i as id, true as wanted, null::int as queue_id, false as pending from unnest(v_ids) i
              union all select p, false, null, true from unnest(v_pending) p
              union all select h.message_id, false, h.queue_id, false from unnest(v_heads) h
              union all select h.message_id, false, h.queue_id, false from posthaste.history_of(v_ids) h) x
       group by x.id having bool_or(x.wanted)
    ), noted as (
      insert into posthaste.action_records (by, action, message_id, queue_id, details)
      select v_by, 'erase', f.id, f.queue_id, jsonb_build_object('term_sha256', v_hash) from found f where f.became = 'erased'
      union all
      select v_by, 'erase', null, null, jsonb_build_object('term_sha256', v_hash, 'found', 0) where cardinality(v_ids) = 0 and erase.before is null
    )
    select f.id, q.name, f.became from found f left join posthaste.queue_settings q on q.id = f.queue_id order by f.id desc;
  perform set_config('posthaste.list_before', coalesce(v_bottom::text, ''), true);
end $$;
