-- posthaste.lock_pause: takes the locks of pausing and resuming something, until the end of
-- the transaction, without waiting for them.
-- Arguments: as of set_pause. Returns: whether it has them all; if not, it may have some.
create or replace function posthaste.lock_pause(p_what text, p_queue int, p_name text)
returns boolean language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_reader bigint;
begin
  if p_what = 'schedule' then
    perform from posthaste.schedule_settings x where x.name = p_name for update skip locked;
    return found;
  elsif p_what <> 'key' then
    if not pg_try_advisory_xact_lock(posthaste.lock_key(13, p_queue)) then
      return false;
    end if;
    -- A settlement that sets messages of a kind aside locks the row alone.
    perform from posthaste.queue_settings q where q.id = p_queue for no key update skip locked;
    return found;
  elsif not pg_try_advisory_xact_lock_shared(posthaste.lock_key(12, p_queue)) then
    return false;
  end if;
  for v_reader in
    select posthaste.reader_key(p_queue, u.number, posthaste.key_lane(p_name, q.width), 0)
      from posthaste.subscriptions u join posthaste.queue_settings q on q.id = u.queue_id
     where u.queue_id = p_queue and u.dropped_at is null order by u.number
  loop
    if not posthaste.lock_reader(v_reader, false) or not posthaste.lock_reader(v_reader + 1, false) then
      return false;
    end if;
  end loop;
  return true;
end $$;
