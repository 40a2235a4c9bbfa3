-- posthaste.lane_of_round: the lanes of a claim one after the other: first those of the
-- priority that it begins with, then those of the others, ascending; those of one priority
-- begin with a different lane each time.
-- Arguments: the round, from 0; the queue's width; the first priority; any number.
-- Returns: the lane.
create or replace function posthaste.lane_of_round(p_round int, p_width int, p_first int, p_start bigint)
returns int language sql immutable parallel safe as
$$ select p_width * case when p_round / p_width = 0 then p_first
                         when p_round / p_width <= p_first then p_round / p_width - 1
                         else p_round / p_width end
          + ((p_start + p_round) % p_width)::int $$;
