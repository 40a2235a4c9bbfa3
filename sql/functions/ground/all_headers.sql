-- posthaste.all_headers: a message's headers as its sender gave them. The trace context is
-- stored in a column of its own because most messages have no other header, and as JSON it
-- would cost half as much as the rest of the row. The empty name has the options of the
-- message's attempts (posthaste.attempt_options).
-- No SET and one expression: it is inlined.
create or replace function posthaste.all_headers(headers jsonb, trace text)
returns jsonb language sql stable parallel safe
return case when trace is null then case when headers ? '' then nullif(headers - '', '{}') else headers end
            else coalesce(headers - '', '{}'::jsonb) || jsonb_build_object('traceparent', trace) end;
