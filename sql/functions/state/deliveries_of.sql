-- posthaste.deliveries_of: the entries of one claim's slice, with their places.
-- Errors: as posthaste.fetch.
create or replace function posthaste.deliveries_of(c posthaste.claims)
returns table (place int, pos bigint, message_id bigint, created_at timestamptz, due_at timestamptz,
  attempt smallint, failures smallint, losses smallint, losses_alone smallint,
  content_type text, key text, kind text, reference text, headers jsonb, terms text[], trace text, story jsonb, payload bytea, ord xid8)
language sql stable rows 1000 set search_path = pg_catalog, pg_temp as
$$ select (f.numbered_from + f.ordinality - c.id * 4096)::int, f.pos, f.message_id, f.created_at, f.due_at, f.attempt, f.failures, f.losses, f.losses_alone,
          f.content_type, f.key, f.kind, f.reference, f.headers, f.terms, f.trace, f.story, f.payload, f.ord
     from posthaste.fetch(null, null, array[c]) with ordinality f $$;
