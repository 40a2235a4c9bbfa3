-- posthaste.tokens: the tokens of the HTTP API that were not dropped. last_used_at is accurate to
-- about five minutes.
create or replace view posthaste.tokens as
select t.name, t.scopes, t.queues, t.created_at, t.created_by, t.expires_at, coalesce(t.expires_at <= clock_timestamp(), false) as expired, t.last_used_at
  from posthaste.issued_tokens t
 where t.dropped_at is null;
