-- posthaste.first_priority: with which priority a claim begins. Where a queue's
-- lanes are priorities, seven claims of eight begin with 0, and the eighth, by
-- lot, with 1, 2 or 3: so that none is starved. A claim goes on with the others
-- in ascending order as long as it is not full.
-- Arguments: the queue's lanes, and its width. Returns: 0 to 3.
create or replace function posthaste.first_priority(p_lanes int, p_width int)
returns int language sql volatile as
$$ select case when p_lanes > p_width and random() < 0.125 then 1 + floor(random() * 3)::int else 0 end $$;
