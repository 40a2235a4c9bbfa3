-- posthaste.history_part: chooses the part of the history for rows that expire at a time: a
-- part that ends soon after that time, or else a free part, or else the part that ends next
-- after it. In the last case the space is reclaimed later.
-- Arguments: when the last of the rows expires; the queue's retention. One part spans a
-- quarter of it. Inserts or updates: history_parts.
create or replace function posthaste.history_part(p_expires timestamptz, p_retention interval)
returns smallint language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
declare
  v_part smallint;
begin
  loop
    select h.part into v_part from posthaste.history_parts h
     where h.until >= p_expires and h.until <= p_expires + p_retention / 4 order by h.until limit 1;
    if v_part is null then
      -- Of two concurrent transactions one inserts the row; the other looks again.
      insert into posthaste.history_parts (part, until)
      select g, p_expires + p_retention / 4 from generate_series(0, 15) g
       where not exists (select from posthaste.history_parts h where h.part = g) order by g limit 1
      on conflict do nothing returning part into v_part;
    end if;
    if v_part is null and (select count(*) from posthaste.history_parts) = 16 then
      select h.part into v_part from posthaste.history_parts h order by h.until < p_expires, abs(extract(epoch from h.until - p_expires)) limit 1;
      -- A part that ends earlier may be over, and upkeep may be deleting its row. Then the
      -- row is gone once the update has waited for it, and the loop looks again.
      if (select h.until < p_expires from posthaste.history_parts h where h.part = v_part) is not false then
        update posthaste.history_parts h set until = p_expires where h.part = v_part and h.until < p_expires returning h.part into v_part;
      end if;
    end if;
    if v_part is not null then
      return v_part;
    end if;
  end loop;
end $$;
