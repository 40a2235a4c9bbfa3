-- posthaste.key_readers: locks the lanes of a key, in all subscriptions of its queue, until the
-- transaction ends. Rows of keys are written under these locks.
-- Arguments: the queue's name, the key. Returns: the lanes' readers of the log.
-- Errors: PH404; PH400 for an invalid key, and unless READ COMMITTED; PH501 if the queue is not
-- keyed; PH503.
-- Locks: the lock of the queue's withdrawals, shared; the lanes' readers, ascending.
create or replace function posthaste.key_readers(p_queue text, p_key text)
returns bigint[] language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_queue int := posthaste.find_queue(p_queue);
  q posthaste.queue_settings;
  v_readers bigint[];
  v_reader bigint;
begin
  select * into q from posthaste.queue_settings z where z.id = v_queue;
  if coalesce(p_key, '') = '' or octet_length(p_key) > 255 then
    raise exception using errcode = case when coalesce(p_key, '') = '' then 'PH400' else 'PH413' end, column = 'key',
      message = case when coalesce(p_key, '') = '' then 'key must not be empty' else 'key is over 255 bytes' end;
  elsif not q.keyed then
    raise exception using errcode = 'PH501', column = 'queue',
      message = format('queue %L does not support pausing keys yet', p_queue),
      hint = 'keys can be paused in queues that are ordered or fair, or have a key_concurrency or key_rate_limit; pause_queue pauses the whole queue';
  end if;
  -- A subscription that is being added copies the paused keys.
  perform posthaste.snapshot_now();
  perform posthaste.lock_queue(v_queue, 'withdrawn', true);
  v_readers := array(select posthaste.reader_key(v_queue, u.number, posthaste.key_lane(p_key, q.width), 0)
                       from posthaste.subscriptions u where u.queue_id = v_queue and u.dropped_at is null order by u.number);
  foreach v_reader in array v_readers loop
    perform posthaste.lock_reader(v_reader, true);
    perform posthaste.lock_reader(v_reader + 1, true);
  end loop;
  -- Without subscriptions that ended during the wait for their lanes: rows written for them
  -- would never be removed.
  return array(select r from unnest(v_readers) r
                where exists (select from posthaste.subscriptions u where u.queue_id = v_queue and u.number = (r >> 10 & 1023) and u.dropped_at is null) order by r);
end $$;
