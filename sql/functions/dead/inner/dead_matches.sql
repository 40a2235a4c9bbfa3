-- posthaste.dead_matches: whether a dead letter matches a filter.
-- No SET and one expression: it is inlined, so that the payload is not read.
create or replace function posthaste.dead_matches(d posthaste.dead_letter_entries, f posthaste.dead_filter)
returns boolean language sql immutable parallel safe
return ((f).queue_id is null or d.queue_id = (f).queue_id)
   and ((f).subscription is null or d.subscription = (f).subscription)
   and ((f).kind is null or d.kind = (f).kind)
   and ((f).key is null or d.key = (f).key)
   and ((f).reference is null or d.reference = (f).reference)
   and ((f).term is null or d.terms @> array[(f).term])
   and ((f).error is null or pg_catalog.strpos(pg_catalog.lower(d.error collate "C"), (f).error) > 0)
   and ((f).died_from is null or d.died_at >= (f).died_from)
   and ((f).died_before is null or d.died_at < (f).died_before);
