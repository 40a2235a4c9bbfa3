-- posthaste.token_drop: drops a token. Servers stop accepting it within seconds.
-- Arguments: its name; by: the actor to record. Returns: true. Errors: PH404.
-- Updates: issued_tokens. Inserts: action_records.
create or replace function posthaste.token_drop(name text, by text default session_user)
returns boolean language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
  update posthaste.issued_tokens t set dropped_at = clock_timestamp(), dropped_by = left(coalesce(token_drop.by, session_user), 255)
   where t.name = token_drop.name and t.dropped_at is null;
  if not found then
    raise exception using errcode = 'PH404', column = 'name', message = format('token %L does not exist', token_drop.name),
      hint = 'the view posthaste.tokens lists them';
  end if;
  insert into posthaste.action_records (by, action, details) values (coalesce(token_drop.by, session_user), 'token_drop', jsonb_build_object('token', token_drop.name));
  return true;
end $$;
