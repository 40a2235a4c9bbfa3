-- posthaste.too_old: whether a message is too old to be handed out.
-- Arguments: when it was sent; from when its age counts, if it was scheduled, rescheduled or
-- replayed; its queue's max_age; the time.
create or replace function posthaste.too_old(p_created_at timestamptz, p_ages_from timestamptz, p_max_age interval, t timestamptz)
returns boolean language sql immutable parallel safe
return coalesce(p_ages_from, p_created_at) + p_max_age <= t;
