-- posthaste.more_of: the value of the column more of entries_plain; null without rare options.
-- No SET and one expression: it is inlined.
create or replace function posthaste.more_of(content_type text, reference text, headers jsonb, terms jsonb)
returns jsonb language sql stable parallel safe
return case when num_nonnulls(content_type, reference, headers, terms) > 0 then
  jsonb_strip_nulls(jsonb_build_object('content_type', content_type, 'reference', reference, 'headers', headers, 'terms', terms)) end;
