-- Tokens of the HTTP API: the secret is returned once, its hash is stored, and a dropped or
-- expired token is not valid.
delete from posthaste.issued_tokens;
do $$
declare
  v_secret text;
  v_other text;
  t record;
begin
  assert not exists (select from posthaste.token_hashes()), 'tokens are required before one exists';
  v_secret := posthaste.token_add('shop', '{send,receive,send}', '{"queues": ["orders", "emails", "orders"]}', 'ada');
  v_other := posthaste.token_add('ops', '{admin}', '{"expires_in": "90 days"}');
  assert v_secret ~ '^ph_[A-Za-z0-9_-]{43}$' and v_other <> v_secret, 'invalid secret';
  select * into strict t from posthaste.token_hashes() h where h.name = 'shop';
  assert t.hash = sha256(convert_to(v_secret, 'UTF8')), 'the hash is another''s';
  assert t.scopes = '{receive,send}' and t.queues = '{emails,orders}', format('stored as %s', t);
  assert (select count(*) from posthaste.token_hashes() h where h.name is null) = 1, 'tokens are not required';
  assert not exists (select from posthaste.issued_tokens x where x::text like '%' || v_secret || '%'), 'the secret is stored';

  -- The time of use is stored once in five minutes.
  perform posthaste.token_hashes('{shop,missing}');
  assert (select array_agg(v.name) from posthaste.tokens v where v.last_used_at > now() - interval '2 minutes') = '{shop}', 'the use is not on record';
  update posthaste.issued_tokens set last_used_at = now() - interval '4 minutes' where name = 'shop';
  perform posthaste.token_hashes('{shop}');
  assert (select v.last_used_at from posthaste.tokens v where v.name = 'shop') = now() - interval '4 minutes', 'the use is stored too often';
  update posthaste.issued_tokens set last_used_at = now() - interval '6 minutes' where name = 'shop';
  perform posthaste.token_hashes('{shop}');
  assert (select v.last_used_at from posthaste.tokens v where v.name = 'shop') > now() - interval '2 minutes', 'the use is not stored any more';

  update posthaste.issued_tokens set expires_at = now() - interval '1 second' where name = 'ops';
  assert not exists (select from posthaste.token_hashes() h where h.name = 'ops'), 'an expired token is in force';
  assert (select v.expired from posthaste.tokens v where v.name = 'ops'), 'it does not say so';
  perform posthaste.token_drop('shop', 'grace');
  assert not exists (select from posthaste.tokens v where v.name = 'shop'), 'a dropped token is listed';
  assert not exists (select from posthaste.token_hashes() h where h.name = 'shop'), 'a dropped token is in force';
  perform posthaste.token_drop('ops');
  assert (select count(*) from posthaste.token_hashes()) = 1, 'without tokens the API is open again';
  assert exists (select from posthaste.issued_tokens x where x.name = 'shop' and x.created_by = 'ada' and x.dropped_by = 'grace'), 'the actor was not recorded';
end $$;

-- Errors of bad input name the field, and nothing is created.
do $$
declare
  r record;
  v_state text;
  v_field text;
begin
  for r in select * from (values
      ('PH400', 'name', $q$select posthaste.token_add(null, '{send}')$q$),
      ('PH400', 'name', $q$select posthaste.token_add('No Good', '{send}')$q$),
      ('PH400', 'name', $q$select posthaste.token_add('..', '{send}')$q$),
      ('PH400', 'scopes', $q$select posthaste.token_add('bad', '{}')$q$),
      ('PH400', 'scopes', $q$select posthaste.token_add('bad', null)$q$),
      ('PH400', 'scopes', $q$select posthaste.token_add('bad', '{send,root}')$q$),
      ('PH400', 'scopes', $q$select posthaste.token_add('bad', '{send,null}')$q$),
      ('PH400', 'color', $q$select posthaste.token_add('bad', '{send}', '{"color": 1}')$q$),
      ('PH400', 'queues', $q$select posthaste.token_add('bad', '{admin}', '{"queues": ["q"]}')$q$),
      ('PH400', 'queues', $q$select posthaste.token_add('bad', '{send}', '{"queues": []}')$q$),
      ('PH400', 'queues', $q$select posthaste.token_add('bad', '{send}', '{"queues": "q"}')$q$),
      ('PH400', 'queues', $q$select posthaste.token_add('bad', '{send}', '{"queues": [1]}')$q$),
      ('PH400', 'queues', $q$select posthaste.token_add('bad', '{send}', '{"queues": [null]}')$q$),
      ('PH400', 'queues', $q$select posthaste.token_add('bad', '{send}', '{"queues": ["No Good"]}')$q$),
      ('PH400', 'expires_in', $q$select posthaste.token_add('bad', '{send}', '{"expires_in": "soon"}')$q$),
      ('PH400', 'expires_in', $q$select posthaste.token_add('bad', '{send}', '{"expires_in": "0 seconds"}')$q$),
      ('PH400', 'expires_in', $q$select posthaste.token_add('bad', '{send}', '{"expires_in": "400000 years"}')$q$),
      ('PH400', 'expires_at', $q$select posthaste.token_add('bad', '{send}', '{"expires_at": "infinity"}')$q$),
      ('PH400', 'expires_at', $q$select posthaste.token_add('bad', '{send}', '{"expires_at": "2001-01-01"}')$q$),
      ('PH400', 'expires_at', $q$select posthaste.token_add('bad', '{send}', '{"expires_at": "tomorrow morning"}')$q$),
      ('PH400', 'expires_in', $q$select posthaste.token_add('bad', '{send}', '{"expires_at": "2201-01-01T00:00:00Z", "expires_in": "1 day"}')$q$),
      ('PH404', 'name', $q$select posthaste.token_drop('bad')$q$),
      ('PH409', 'name', $q$select posthaste.token_add('again', '{send}'), posthaste.token_add('again', '{send}')$q$)
    ) x (state, field, sql) loop
    v_state := null;
    begin
      execute r.sql;
    exception when others then
      get stacked diagnostics v_state = returned_sqlstate, v_field = column_name;
    end;
    assert v_state = r.state and v_field = r.field, format('%s ended with %s, field %s', r.sql, coalesce(v_state, 'success'), v_field);
  end loop;
  assert not exists (select from posthaste.tokens), 'an invalid token was created';
end $$;
