import os

import psycopg
from psycopg.types.json import Jsonb

# With autocommit each statement is a transaction of its own, so a receive is committed before the work.
with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as db:
    # The order and its message commit together.
    with db.transaction():
        db.execute("insert into orders (id, item) values (%s, %s)", (7, "lamp"))
        db.execute("select posthaste.send('orders', %s, %s)", (Jsonb({"order": 7}), Jsonb({"reference": "order-7"})))

    while messages := db.execute("select delivery_id, payload_json from posthaste.receive('orders', 10, '1 minute')").fetchall():
        for delivery_id, payload in messages:
            try:
                # The shipment and the acknowledgment commit together.
                with db.transaction():
                    db.execute("insert into shipments (order_id) values (%s)", (payload["order"],))
                    db.execute("select posthaste.ack(%s, %s)", (delivery_id, Jsonb({"strict": True})))
                print("shipped order", payload["order"])
            except Exception as error:
                db.execute("select posthaste.fail(%s, %s)", (delivery_id, repr(error)))
