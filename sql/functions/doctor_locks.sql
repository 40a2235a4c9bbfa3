-- posthaste.doctor_locks: is there room in the server's table of locks, which all
-- programs share? A statement that finds it full fails (53200), whosever it is.
-- A claim or settle in a session that has made no plans for it yet takes up to 300
-- places, for it plans over all 16 slots and their indexes; one that has, about 80.
-- Reads: pg_locks, registrations.
create or replace function posthaste.doctor_locks()
returns table (level text, message text, hint text, queue text, subscription text) language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_sessions int := current_setting('max_connections')::int + current_setting('max_prepared_transactions')::int;
  v_places int := current_setting('max_locks_per_transaction')::int * v_sessions;
  v_taken int := (select count(*) from pg_locks l where not l.fastpath);
  v_workers int := (select count(*) from posthaste.registrations w where w.ended_at is null and w.lost_at is null);
  v_wanted int := v_workers * 2 * 300;
begin
  if v_taken > v_places / 2 then
    return query select 'warning', format('%s of %s places in the table of locks are taken; when it is full, statements of all programs fail', v_taken, v_places),
      'see in pg_locks who has them, and set max_locks_per_transaction higher, which needs a restart of the server', null::text, null::text;
  end if;
  if v_wanted > v_places then
    return query select 'warning', format('%s workers that begin at once can take %s places in the table of locks, and it has %s; when it is full, statements of all programs fail', v_workers, v_wanted, v_places),
      format('set max_locks_per_transaction to %s, which needs a restart of the server', ceil(v_wanted::numeric / v_sessions)), null::text, null::text;
  end if;
end $$;
