create table public.orders (id int primary key, shipped boolean not null default false);
