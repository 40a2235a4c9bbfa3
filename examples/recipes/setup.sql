create table public.orders (id int primary key, item text not null);
create table public.shipments (order_id int primary key);
select posthaste.create_queue('orders');
