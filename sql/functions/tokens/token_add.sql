-- posthaste.token_add: creates a token for callers of the HTTP API.
-- Arguments: a name that no other token has; scopes: read, read:payload, send, receive,
-- operate, admin; by: the actor to record.
-- Options: queues (an array of names: the scopes hold for these only), expires_at or
-- expires_in.
-- Returns: the secret, which is not stored: only its hash is.
-- Errors: PH400 with the field, PH409 if the name is taken, PH503 if there are
-- 1,000 tokens. Inserts: issued_tokens, action_records.
create or replace function posthaste.token_add(name text, scopes text[], options anycompatible default null::text, by text default session_user)
returns text language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  v_options jsonb := coalesce(posthaste.json_argument(token_add.options, 'options'), '{}');
  v_scopes text[] := array(select distinct x from unnest(token_add.scopes) x order by 1);
  q jsonb := nullif(v_options -> 'queues', 'null');
  v_in interval;
  v_at timestamptz;
  v_secret text;
begin
  perform posthaste.check_name(token_add.name, 'token');
  perform posthaste.check_array(token_add.scopes, 'scopes');
  if cardinality(v_scopes) = 0 or array_position(v_scopes, null) is not null or not v_scopes <@ array['read', 'read:payload', 'send', 'receive', 'operate', 'admin'] then
    raise exception using errcode = 'PH400', column = 'scopes', message = 'scopes must be one or more of read, read:payload, send, receive, operate and admin';
  end if;
  perform posthaste.check_options(v_options, array['queues', 'expires_at', 'expires_in'], '{}');
  -- The queues need not exist yet.
  if jsonb_typeof(q) <> 'array' then
    raise exception using errcode = 'PH400', column = 'queues', message = 'option ''queues'' must be an array of queue names';
  elsif jsonb_array_length(q) not between 1 and 100
     or exists (select from jsonb_array_elements(q) x where jsonb_typeof(x) <> 'string' or x #>> '{}' !~ '^[a-z0-9_.-]{1,63}$') then
    raise exception using errcode = 'PH400', column = 'queues', message = 'option ''queues'' must be 1 to 100 queue names',
      hint = 'leave it out for all queues';
  elsif q is not null and 'admin' = any (v_scopes) then
    raise exception using errcode = 'PH400', column = 'queues', message = 'a token with scope admin cannot be limited to queues';
  end if;
  v_in := posthaste.option_interval(v_options, 'expires_in');
  v_at := posthaste.option_time(v_options, 'expires_at');
  if v_in is not null and v_at is not null then
    raise exception using errcode = 'PH400', column = 'expires_in', message = 'expires_in excludes expires_at';
  end if;
  begin
    v_at := coalesce(v_at, clock_timestamp() + v_in);
  exception when data_exception then
    raise exception using errcode = 'PH400', column = 'expires_in',
      message = 'invalid expiry time', hint = 'for example expires_at ''2030-01-31T12:00:00Z'', or expires_in ''90 days''';
  end;
  if v_at <= clock_timestamp() or v_at >= posthaste.last_time() then
    raise exception using errcode = 'PH400', column = case when v_in is null then 'expires_at' else 'expires_in' end,
      message = 'a token must expire in the future, before the last day of the year 9999';
  end if;
  if (select count(*) from posthaste.issued_tokens t where t.dropped_at is null) >= 1000 then
    raise exception using errcode = 'PH503', column = 'name', message = 'the maximum of 1000 tokens is reached', hint = 'drop some tokens';
  end if;
  -- 3 × 122 random bits, of which the hash keeps 256.
  v_secret := 'ph_' || rtrim(translate(encode(sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())),
    'base64'), '+/', '-_'), '=');
  insert into posthaste.issued_tokens (name, hash, scopes, queues, created_by, expires_at)
  values (token_add.name, sha256(convert_to(v_secret, 'UTF8')), v_scopes,
    case when q is not null then array(select distinct x from jsonb_array_elements_text(q) x order by 1) end, left(coalesce(token_add.by, session_user), 255), v_at)
  on conflict (name) where dropped_at is null do nothing;
  if not found then
    raise exception using errcode = 'PH409', column = 'name', message = format('token %L already exists', token_add.name),
      hint = 'a new secret needs a new name: add a token, distribute its secret, then drop the old one';
  end if;
  insert into posthaste.action_records (by, action, details) values (coalesce(token_add.by, session_user), 'token_add', jsonb_build_object('token', token_add.name));
  return v_secret;
end $$;
