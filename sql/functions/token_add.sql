-- posthaste.token_add: makes a token for callers of the HTTP API.
-- Arguments: a name that no other token has; scopes: send, receive, admin; by: who
-- asked, for the record.
-- Options: queues (an array of names: send and receive for these only), expires_at
-- or expires_in.
-- Returns: the secret, which is stored nowhere: only its hash is.
-- Errors: PH400 with the field, PH409 if the name is taken, PH503 if there are
-- 1,000 tokens. Inserts: issued_tokens.
create or replace function posthaste.token_add(name text, scopes text[], options jsonb default '{}', by text default session_user)
returns text language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
declare
  o jsonb := coalesce(token_add.options, '{}');
  v_scopes text[] := array(select distinct x from unnest(token_add.scopes) x order by 1);
  v_queues text[];
  v_expires timestamptz;
  v_secret text;
begin
  perform posthaste.check_name(token_add.name, 'token');
  perform posthaste.check_array(token_add.scopes, 'scopes');
  if cardinality(v_scopes) = 0 or array_position(v_scopes, null) is not null or not v_scopes <@ array['send', 'receive', 'admin'] then
    raise exception using errcode = 'PH400', column = 'scopes', message = 'scopes must be one or more of send, receive and admin';
  end if;
  perform posthaste.check_options(o, array['queues', 'expires_at', 'expires_in'], '{}');
  v_queues := posthaste.token_queues(o);
  if v_queues is not null and 'admin' = any (v_scopes) then
    raise exception using errcode = 'PH400', column = 'queues', message = 'a token with the scope admin cannot be limited to queues: it may do everything';
  end if;
  v_expires := posthaste.token_end(o);
  if (select count(*) from posthaste.issued_tokens t where t.dropped_at is null) >= 1000 then
    raise exception using errcode = 'PH503', column = 'name', message = 'there are 1000 tokens, which is the most there can be', hint = 'drop some';
  end if;
  -- 3 × 122 random bits, of which the hash keeps 256.
  v_secret := 'ph_' || rtrim(translate(encode(sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())),
    'base64'), '+/', '-_'), '=');
  insert into posthaste.issued_tokens (name, hash, scopes, queues, created_by, expires_at)
  values (token_add.name, sha256(convert_to(v_secret, 'UTF8')), v_scopes, v_queues, left(coalesce(token_add.by, session_user), 255), v_expires)
  on conflict (name) where dropped_at is null do nothing;
  if not found then
    raise exception using errcode = 'PH409', column = 'name', message = format('there is a token %L already', token_add.name),
      hint = 'a new secret needs a new name: add it, give it out, then drop the old one';
  end if;
  return v_secret;
end $$;
