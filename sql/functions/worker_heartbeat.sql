-- posthaste.worker_heartbeat: keeps a worker alive and looks at its queues.
-- Arguments: worker; arrays of queues and subscriptions to look at.
-- Returns: per queue, in order: ready, next_due (seconds); and in each row
-- maintain (messages flowed since the last round of maintenance) and rescue
-- (a worker is overdue or gone, or a lease has ended; true from the queue on
-- where it was seen). One row at least. A queue that is gone has ready null.
-- Errors: PH410 the worker was declared lost. Updates: registrations.
create or replace function posthaste.worker_heartbeat(p_worker bigint, p_queues text[], p_subscriptions text[])
returns table (ready boolean, next_due double precision, maintain boolean, rescue boolean)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp set max_parallel_workers_per_gather = 0 as $$
declare
  v_maintain boolean;
  v_rescue boolean;
  v record;
begin
  update posthaste.registrations w set heartbeat_at = clock_timestamp()
   where w.id = p_worker and w.lost_at is null and w.ended_at is null;
  if not found then
    raise exception using errcode = 'PH410', message = format('worker %s is not registered any more', p_worker),
      hint = 'register anew; what it held is handed out elsewhere';
  end if;
  v_maintain := (select p.last_value from posthaste.positions p) <> (select k.last_value from posthaste.counted k);
  v_rescue := exists (select from posthaste.registrations w where (w.lost_at is not null or w.ended_at is not null) and not w.cleared
                         or posthaste.worker_overdue(w));
  for v in select q.id, q.lanes, s.number
             from unnest(p_queues, p_subscriptions) with ordinality u (queue, subscription, n)
             left join posthaste.queue_settings q on q.name = u.queue and q.dropped_at is null
             left join posthaste.subscriptions s on s.queue_id = q.id and s.name = coalesce(nullif(u.subscription, ''), 'default') and s.dropped_at is null
            order by u.n loop
    ready := null;
    next_due := null;
    if v.number is not null then
      v_rescue := v_rescue or posthaste.leases_ended(v.id::bigint << 10 | v.number);
      select k.ready, k.next_due into ready, next_due from posthaste.look(v.id, v.number, v.lanes) k;
    end if;
    maintain := v_maintain;
    rescue := v_rescue;
    return next;
  end loop;
  if cardinality(p_queues) = 0 then
    maintain := v_maintain;
    rescue := v_rescue;
    return next;
  end if;
  -- Last, for it keeps this worker from claiming until the transaction ends.
  perform posthaste.move_mark(p_worker);
end $$;
