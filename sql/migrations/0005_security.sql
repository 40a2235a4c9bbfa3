-- compatible
-- Tokens of the HTTP API. A secret is 256 random bits, so that its plain SHA-256
-- tells nothing of it: there is nothing to guess, and nothing to slow down. Rows
-- of dropped tokens stay: they tell who had one, and that this database's servers
-- ask for tokens.
create table posthaste.issued_tokens (
  id           int primary key generated always as identity,
  name         text        not null check (name ~ '^[a-z0-9_.-]{1,63}$'),
  hash         bytea       not null check (octet_length(hash) = 32),
  scopes       text[]      not null check (cardinality(scopes) > 0 and scopes <@ array['send', 'receive', 'admin']),
  queues       text[]      check (cardinality(queues) > 0),
  created_at   timestamptz not null default clock_timestamp(),
  created_by   text        not null,
  expires_at   timestamptz,
  last_used_at timestamptz,
  dropped_at   timestamptz,
  dropped_by   text
);
create unique index issued_tokens_name on posthaste.issued_tokens (name) where dropped_at is null;
