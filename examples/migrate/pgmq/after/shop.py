import os
import time

import psycopg
from psycopg.types.json import Jsonb

# With autocommit each statement is a transaction of its own, so a receive is committed before the work.
with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as db:
    db.execute("select posthaste.create_queue('shop')")

    # The order and its messages commit together.
    with db.transaction():
        db.execute("insert into orders (id) values (%s)", (8,))
        db.execute("select posthaste.send('shop', %s)", (Jsonb({"task": "ship", "order": 8}),))
        db.execute("select posthaste.send('shop', %s, %s)", (Jsonb({"task": "review", "order": 8}), Jsonb({"delay": "1h"})))

    shipped = False
    while not shipped:  # a service would go on
        for delivery_id, attempt, message in db.execute("select delivery_id, attempt, payload_json from posthaste.receive('shop', 10, '1 minute')").fetchall():
            order = message["order"]
            if message["task"] == "review":
                print("asked for a review of order", order)
                db.execute("select posthaste.ack(%s)", (delivery_id,))
            elif attempt == 1:
                print(f"order {order}: the carrier is busy")
                db.execute("select posthaste.fail(%s, 'the carrier is busy')", (delivery_id,))
            else:
                # The shipment and the acknowledgement commit together.
                with db.transaction():
                    db.execute("update orders set shipped = true where id = %s", (order,))
                    db.execute("select posthaste.ack(%s, %s)", (delivery_id, Jsonb({"strict": True})))
                print("shipped order", order)
                shipped = True
        time.sleep(0.3)
