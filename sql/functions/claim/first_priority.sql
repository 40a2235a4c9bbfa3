-- posthaste.first_priority: the priority that a claim begins with. If a queue's lanes are
-- priorities, seven of eight claims begin with 0, and the eighth, at random, with 1, 2 or 3,
-- so that none is starved. A claim continues with the others in ascending order as long as it
-- is not full.
-- Arguments: whether the queue's lanes are priorities. Returns: 0 to 3.
create or replace function posthaste.first_priority(p_prioritized boolean)
returns int language sql volatile as
$$ select case when p_prioritized and random() < 0.125 then 1 + floor(random() * 3)::int else 0 end $$;
