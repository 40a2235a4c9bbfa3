-- posthaste.not_here: why nothing is handed out in this database. Either it is a copy with
-- ids of its own (posthaste.is_original). Or the server was started or promoted, and no
-- worker came since from an environment that workers of the last day had come from; then it
-- may be a physical copy of their database.
-- Arguments: the caller's environment: empty for a worker without one, null for all other
-- callers without one.
-- Returns: nulls if messages are handed out. Reads: identity, since_crash, registrations.
create or replace function posthaste.not_here(p_environment text default null, out message text, out hint text)
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  if not posthaste.is_original() then
    message := 'this database is a copy of the one that its messages were sent in: nothing is handed out until an operator allows it';
    hint := 'sending works; if the original does not hand out messages any more, run `posthaste rebase`, or after pg_upgrade `posthaste rebase --same-ids` (in SQL: posthaste.rebase)';
  elsif not exists (select from posthaste.since_crash x where x.started = pg_postmaster_start_time())
        and exists (select from posthaste.registrations r where r.environment <> '')
        and not exists (select from posthaste.registrations r where r.environment = p_environment) then
    message := format('this server was started or promoted %s, and its workers had come from %s%s: it may be a copy of their server, so nothing is handed out until one of them comes back or an operator allows it',
                      to_char(pg_postmaster_start_time() at time zone 'UTC', 'on YYYY-MM-DD at HH24:MI UTC'),
                      (select string_agg(x.environment, ' and ') from (select distinct r.environment from posthaste.registrations r where r.environment <> '' order by 1 limit 3) x),
                      ', and not from ' || nullif(p_environment, ''));
    hint := 'sending works; if this is their server at another address, run `posthaste rebase --same-ids`; if it is a second copy, leave it as it is, or run `posthaste rebase` to hand out the same messages here, too';
  end if;
end $$;
