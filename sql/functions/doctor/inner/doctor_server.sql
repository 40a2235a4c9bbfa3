-- posthaste.doctor_server: whether this database is a copy, where nothing is handed out; whether
-- the roles have their privileges; whether the clock was set back; whether there is room in the
-- server's lock table, which all programs share.
-- Reads: the tables of not_here, pg_roles and the privileges, claims, counted, pg_locks,
-- registrations.
create or replace function posthaste.doctor_server()
returns table ("check" text, level text, message text, hint text, queue text, subscription text) language plpgsql volatile
set search_path = pg_catalog, pg_temp set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
  l posthaste.live := posthaste.live_slots();
  v_ahead interval;
  v_sessions int := current_setting('max_connections')::int + current_setting('max_prepared_transactions')::int;
  v_places int := current_setting('max_locks_per_transaction')::int * v_sessions;
  v_taken int := (select count(*) from pg_locks k where not k.fastpath);
  v_workers int := (select count(*) from posthaste.registrations w where w.ended_at is null and w.lost_at is null);
  v_wanted int := v_workers * 2 * 300;
begin
  return query select 'identity', 'fault', n.message, n.hint, null::text, null::text from posthaste.not_here() n where n.message is not null;
  -- Without roles (migrate up --no-roles) there is nothing to check.
  return query
    select 'privileges', 'fault', format('role %s may not %s', r.rolname, x.what), 'grant it again: posthaste migrate up', null::text, null::text
      from pg_roles r
      join (values ('posthaste_sender', 'send', 'posthaste.send(text, text, anycompatible)'),
                   ('posthaste_receiver', 'receive', 'posthaste.receive(text, bigint, interval, anycompatible)'),
                   ('posthaste_receiver', 'do upkeep', 'posthaste.maintain()'),
                   ('posthaste_admin', 'create queues', 'posthaste.create_queue(text, anycompatible, text)')) x (role, what, call) on x.role = r.rolname
     where not has_schema_privilege(r.rolname, 'posthaste', 'usage') or not has_function_privilege(r.rolname, x.call, 'execute')
     order by 3;
  -- Readers never go back in time, so nothing becomes due until the clock has caught up.
  select greatest((select c.at from posthaste.counted c),
                  max((select y.t1 from posthaste.claims y
                        where y.reader = posthaste.reader_key(s.queue_id, s.number, g, 1)
                          and posthaste.in_slots(y.slot, l.a, l.b, l.c, l.d, l.e, l.f)
                        order by y.reader desc, y.seq desc limit 1))) - clock_timestamp() into v_ahead
    from posthaste.subscriptions s join posthaste.queue_settings q on q.id = s.queue_id cross join generate_series(0, q.lanes - 1) g
   where s.dropped_at is null;
  if v_ahead > interval '2 seconds' then
    return query select 'clock', 'warning', format('the clock of the database was set back by %s', date_trunc('second', v_ahead)),
      'scheduled messages and retries become due when it has caught up; other messages are handed out', null::text, null::text;
  end if;
  -- Any statement that finds the lock table full fails (53200). A claim or settle in a session
  -- without plans for it takes up to 300 locks, because it plans over all 16 slots and their
  -- indexes; with plans, about 80.
  if v_taken > v_places / 2 then
    return query select 'locks', 'warning', format('%s of %s entries of the lock table are in use; when it is full, statements of all programs fail', v_taken, v_places),
      'look in pg_locks for their sessions, and raise max_locks_per_transaction, which needs a restart of the server', null::text, null::text;
  end if;
  if v_wanted > v_places then
    return query select 'locks', 'warning', format('%s workers that start at once can use %s entries of the lock table, and it has %s; when it is full, statements of all programs fail', v_workers, v_wanted, v_places),
      format('set max_locks_per_transaction to %s, which needs a restart of the server', ceil(v_wanted::numeric / v_sessions)), null::text, null::text;
  end if;
end $$;
