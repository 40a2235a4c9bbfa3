-- compatible
-- Who sends by COPY writes due times without a function that would check them, and one
-- that no program can show would break every list that holds it.
alter table posthaste.entries add constraint entries_due_at check (due_at >= '1970-01-01 00:00:00+00' and due_at < '9999-12-31 00:00:00+00') not valid;
