-- The rights of Posthaste's three roles. Applied at each migrate, after the functions and
-- views, to those of the roles that exist. No role writes to a table itself.
--
-- The list below gives each function that a role may execute one of three classes:
--   public  The interface for users, which docs/reference/sql.md describes. It runs with
--           the rights of its owner.
--   driver  Called by Posthaste's Go programs. Arguments and results may change with each
--           release. It runs with the rights of its owner too; the keys of locks read nothing.
--   view    Called by a view, directly or through such a function. PostgreSQL checks the right
--           to execute it for the role that reads the view, and not for the view's owner.
-- All other functions are inner: only their owner may execute them, and so the functions
-- that run with the rights of the owner. A function that is inlined into those needs no right.
--
-- posthaste_admin may execute all that is listed, and read all tables. A test of
-- internal/fence compares the classes with the reference, the Go code and the views.
revoke all on schema posthaste from public;
revoke all on all tables in schema posthaste from public;
revoke all on all functions in schema posthaste from public;

do $$
declare
  g record;
  f record;
begin
  for g in
    select r.rolname
      from pg_catalog.pg_roles r
     where r.rolname in ('posthaste_sender', 'posthaste_receiver', 'posthaste_admin')
     order by r.rolname
  loop
    execute format('grant usage on schema posthaste to %I', g.rolname);
    execute format('grant select on posthaste.migrations to %I', g.rolname);
    -- A function may have been of another class before.
    execute format('revoke all on all functions in schema posthaste from %I', g.rolname);
  end loop;

  for g in
    select r.rolname, l.function
      from (values
        ('public', 'posthaste_sender', 'send'),
        ('public', 'posthaste_sender', 'send_bytes'),
        ('public', 'posthaste_sender', 'send_many'),
        ('public', 'posthaste_sender', 'send_unique'),
        ('public', 'posthaste_receiver', 'receive'),
        ('public', 'posthaste_receiver', 'ack'),
        ('public', 'posthaste_receiver', 'fail'),
        ('public', 'posthaste_receiver', 'release'),
        ('public', 'posthaste_receiver', 'extend'),
        ('public', 'posthaste_receiver', 'checkpoint'),
        ('public', 'posthaste_receiver', 'progress'),
        ('public', 'posthaste_receiver', 'message'),
        ('public', 'posthaste_receiver', 'rescue'),
        ('public', 'posthaste_receiver', 'maintain'),
        ('public', 'posthaste_receiver', 'tick'),
        ('public', 'posthaste_admin', 'create_queue'),
        ('public', 'posthaste_admin', 'update_queue'),
        ('public', 'posthaste_admin', 'pause_key'),
        ('public', 'posthaste_admin', 'resume_key'),
        ('public', 'posthaste_admin', 'pause_kind'),
        ('public', 'posthaste_admin', 'resume_kind'),
        ('public', 'posthaste_admin', 'pause_queue'),
        ('public', 'posthaste_admin', 'resume_queue'),
        ('public', 'posthaste_admin', 'drop_queue'),
        ('public', 'posthaste_admin', 'subscribe'),
        ('public', 'posthaste_admin', 'unsubscribe'),
        ('public', 'posthaste_admin', 'purge'),
        ('public', 'posthaste_admin', 'cancel'),
        ('public', 'posthaste_admin', 'reschedule'),
        ('public', 'posthaste_admin', 'update_message'),
        ('public', 'posthaste_admin', 'run_message'),
        ('public', 'posthaste_admin', 'list_messages'),
        ('public', 'posthaste_admin', 'list_dead_letters'),
        ('public', 'posthaste_admin', 'list_actions'),
        ('public', 'posthaste_admin', 'list_pauses'),
        ('public', 'posthaste_admin', 'list_stats'),
        ('public', 'posthaste_admin', 'list_failures'),
        ('public', 'posthaste_admin', 'list_samples'),
        ('public', 'posthaste_admin', 'schedule_put'),
        ('public', 'posthaste_admin', 'schedule_drop'),
        ('public', 'posthaste_admin', 'schedule_pause'),
        ('public', 'posthaste_admin', 'schedule_resume'),
        ('public', 'posthaste_admin', 'schedule_run'),
        ('public', 'posthaste_admin', 'schedule_next'),
        ('public', 'posthaste_admin', 'replay'),
        ('public', 'posthaste_admin', 'discard'),
        ('public', 'posthaste_admin', 'token_add'),
        ('public', 'posthaste_admin', 'token_drop'),
        ('public', 'posthaste_admin', 'erase'),
        ('public', 'posthaste_admin', 'give_up'),
        ('public', 'posthaste_admin', 'rebase'),
        ('public', 'posthaste_admin', 'doctor'),
        ('public', 'posthaste_admin', 'vitals'),
        ('public', 'posthaste_admin', 'oldest_slot'),
        ('driver', 'posthaste_sender', 'not_here'),
        ('driver', 'posthaste_sender', 'send_row'),
        ('driver', 'posthaste_sender', 'send_rows'),
        ('driver', 'posthaste_sender', 'send_told'),
        ('driver', 'posthaste_admin', 'edit_message'),
        ('driver', 'posthaste_sender', 'idempotency_begin'),
        ('driver', 'posthaste_sender', 'idempotency_end'),
        ('driver', 'posthaste_receiver', 'arm'),
        ('driver', 'posthaste_receiver', 'bell_key'),
        ('driver', 'posthaste_receiver', 'doze_key'),
        ('driver', 'posthaste_receiver', 'lock_key'),
        ('driver', 'posthaste_receiver', 'worker_register'),
        ('driver', 'posthaste_receiver', 'warm_up'),
        ('driver', 'posthaste_receiver', 'worker_heartbeat'),
        ('driver', 'posthaste_receiver', 'worker_look'),
        ('driver', 'posthaste_receiver', 'worker_unregister'),
        ('driver', 'posthaste_receiver', 'report_stats'),
        ('driver', 'posthaste_receiver', 'worker_unsettled'),
        ('driver', 'posthaste_receiver', 'receive_rows'),
        ('driver', 'posthaste_receiver', 'claim'),
        ('driver', 'posthaste_receiver', 'fetch'),
        ('driver', 'posthaste_receiver', 'settle'),
        ('driver', 'posthaste_receiver', 'note'),
        ('driver', 'posthaste_receiver', 'tick_in'),
        ('driver', 'posthaste_receiver', 'rescue_in'),
        ('driver', 'posthaste_admin', 'token_hashes'),
        ('driver', 'posthaste_admin', 'delivery_queues'),
        ('view', 'posthaste_admin', 'all_headers'),
        ('view', 'posthaste_admin', 'texts_of'),
        ('view', 'posthaste_admin', 'is_for'),
        ('view', 'posthaste_admin', 'passes'),
        ('view', 'posthaste_admin', 'message_state'),
        ('view', 'posthaste_admin', 'oldest_waiting'),
        ('view', 'posthaste_admin', 'set_aside'),
        ('view', 'posthaste_admin', 'rate_option'),
        ('view', 'posthaste_admin', 'kinds_option'),
        ('view', 'posthaste_admin', 'worker_overdue'),
        ('view', 'posthaste_admin', 'upcoming_ticks'),
        ('view', 'posthaste_admin', 'next_tick'),
        ('view', 'posthaste_admin', 'cron_wall'),
        ('view', 'posthaste_admin', 'wall_time'),
        ('view', 'posthaste_admin', 'zone_change')
      ) l (class, role, function)
      join pg_catalog.pg_roles r on r.rolname in (l.role, 'posthaste_admin')
  loop
    for f in select p.oid::pg_catalog.regprocedure as signature from pg_catalog.pg_proc p
              where p.pronamespace = 'posthaste'::pg_catalog.regnamespace and p.proname = g.function
    loop
      execute format('grant execute on routine %s to %I', f.signature, g.rolname);
    end loop;
  end loop;

  if exists (select from pg_catalog.pg_roles where rolname = 'posthaste_admin') then
    grant select on all tables in schema posthaste to posthaste_admin;
  end if;
end $$;
