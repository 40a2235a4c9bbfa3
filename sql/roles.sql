-- The three roles that grants.sql gives rights to. Roles belong to the whole server, so another
-- database may have created them already, or may create them concurrently.
-- Errors: PH503 if the user may not create roles.
do $$
declare
  wanted name;
begin
  foreach wanted in array array['posthaste_sender', 'posthaste_receiver', 'posthaste_admin']::name[] loop
    if not exists (select from pg_catalog.pg_roles where rolname = wanted) then
      begin
        execute format('create role %I nologin', wanted);
      exception
        when duplicate_object or unique_violation then
          null;  -- another session was faster
        when insufficient_privilege then
          raise exception using errcode = 'PH503',
            message = format('the user %s may not create the role %s', current_user, wanted),
            hint = 'run migrate as a user with CREATEROLE, or let such a user create the roles, or run `posthaste migrate up --no-roles`';
      end;
    end if;
  end loop;
  foreach wanted in array array['posthaste_sender', 'posthaste_receiver']::name[] loop
    if not exists (select from pg_catalog.pg_auth_members
                    where roleid = (select oid from pg_catalog.pg_roles where rolname = wanted)
                      and member = (select oid from pg_catalog.pg_roles where rolname = 'posthaste_admin')) then
      begin
        execute format('grant %I to posthaste_admin', wanted);
      exception
        when duplicate_object or unique_violation then
          null;
        when insufficient_privilege then
          raise exception using errcode = 'PH503',
            message = format('the user %s may not grant %s to posthaste_admin', current_user, wanted),
            hint = 'run migrate as the user that created these roles, or run `posthaste migrate up --no-roles`';
      end;
    end if;
  end loop;
end $$;
