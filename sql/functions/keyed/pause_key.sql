-- posthaste.pause_key: pauses delivery for one key: later claims and receives find none of its
-- messages, in all subscriptions of the queue, including later ones. Other keys and senders
-- are not affected, and messages handed out before can be settled.
-- Arguments: the queue's name, which must be keyed; the key; by: the actor to record;
-- reason and until as of set_pause.
-- Returns: whether it changed anything. Errors: PH404, PH400, PH501 if the queue is not keyed,
-- PH503; those of set_pause.
-- Locks: as key_readers. Inserts: keys. Writes as set_pause.
create or replace function posthaste.pause_key(queue text, key text, by text default session_user, reason text default null, until timestamptz default null)
returns boolean language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_reader bigint;
begin
  foreach v_reader in array posthaste.key_readers(pause_key.queue, pause_key.key) loop
    insert into posthaste.keys as z (subscriber, key, lane, hash, paused_at)
    values (v_reader >> 10, pause_key.key, v_reader >> 1 & 511, posthaste.key_hash(pause_key.key), clock_timestamp())
    on conflict (subscriber, key) do update set paused_at = excluded.paused_at where z.paused_at is null;
  end loop;
  return posthaste.set_pause('key', posthaste.find_queue(pause_key.queue), pause_key.key, pause_key.by, pause_key.reason, pause_key.until);
end $$;
