-- posthaste.slot_start: the first position of a slot that lies at least a whole revolution
-- (2^26) after a given position.
create or replace function posthaste.slot_start(p_last bigint, p_slot int)
returns bigint language sql immutable set search_path = pg_catalog, pg_temp as
$$ select (e + ((p_slot - e) & 15)) << 22 from (select (p_last + 67108864 + 4194303) >> 22 as e) x $$;
