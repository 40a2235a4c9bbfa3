-- posthaste.end_pause: ends one pause whose end is reached, as the function that resumes it does. It
-- leaves out those whose locks others hold. If one cannot be ended, the server's log tells why.
-- Returns: whether it ended one. Deletes: pauses. Locks: as the function that resumes, without waiting.
create or replace function posthaste.end_pause()
returns boolean language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_now timestamptz := clock_timestamp();
  p record;
begin
  for p in
    select x.id, x.what, x.queue_id, x.name, q.name as queue
      from posthaste.pauses x left join posthaste.queue_settings q on q.id = x.queue_id
     where x.until <= v_now order by x.until limit 100
  loop
    begin
      if not posthaste.lock_pause(p.what, p.queue_id, p.name) then
        raise exception using errcode = 'ZZ001'; -- gives back the locks that it took
      end if;
      -- Again, under the lock: it may have been resumed, and even paused again.
      if not exists (select from posthaste.pauses x where x.id = p.id and x.until <= v_now) then
        raise exception using errcode = 'ZZ001';
      end if;
      case p.what
        when 'queue' then perform posthaste.resume_queue(p.queue, 'end of pause');
        when 'key' then perform posthaste.resume_key(p.queue, p.name, 'end of pause');
        when 'kind' then perform posthaste.resume_kind(p.queue, p.name, 'end of pause');
        else perform posthaste.schedule_resume(p.name, 'end of pause');
      end case;
      -- Otherwise a row of something that was not paused would be ended again and again.
      delete from posthaste.pauses x where x.id = p.id;
      return true;
    exception when sqlstate 'ZZ001' then
      null;
    when others then
      -- The others, and the schedules, must not wait for this one.
      raise warning 'posthaste: the pause of % % has ended, and it could not be resumed: %', p.what, coalesce(nullif(p.name, ''), p.queue), sqlerrm;
    end;
  end loop;
  return false;
end $$;
