-- posthaste.summarize: updates the indexes by position for the newest slots; rows that they do
-- not cover are read in full.
create or replace function posthaste.summarize()
returns void language plpgsql volatile set search_path = pg_catalog, pg_temp set lock_timeout = '50ms' as $$
declare
  v_slot int;
begin
  for v_slot in select s.slot from posthaste.slots s where s.live order by s.epoch desc limit 2 loop
    perform brin_summarize_new_values(format('posthaste.entries_plain_%s_pos_idx', v_slot)::regclass);
    perform brin_summarize_new_values(format('posthaste.entries_other_%s_pos_idx', v_slot)::regclass);
  end loop;
exception when lock_not_available then
  null; -- a later round does it
end $$;
