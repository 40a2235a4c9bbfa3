import os

from sqlalchemy import create_engine, text

engine = create_engine(os.environ["DATABASE_URL"].replace("postgres://", "postgresql+psycopg://"))
# The same pool, for statements that are transactions of their own.
autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")

# The order and its message commit together.
with engine.begin() as db:
    db.execute(text("insert into orders (id, item) values (:id, :item)"), {"id": 7, "item": "lamp"})
    db.execute(
        text("select posthaste.send('orders', :payload, :options)"),
        {"payload": '{"order": 7}', "options": '{"reference": "order-7"}'},
    )


def receive():
    with autocommit.connect() as db:
        return db.execute(text("select delivery_id, payload_json from posthaste.receive('orders', 10, '1 minute')")).all()


while messages := receive():
    for delivery_id, payload in messages:
        try:
            # The shipment and the acknowledgment commit together.
            with engine.begin() as db:
                db.execute(text("insert into shipments (order_id) values (:id)"), {"id": payload["order"]})
                db.execute(text("""select posthaste.ack(:id, '{"strict": true}')"""), {"id": delivery_id})
            print("shipped order", payload["order"])
        except Exception as error:
            with autocommit.connect() as db:
                db.execute(text("select posthaste.fail(:id, :error)"), {"id": delivery_id, "error": repr(error)})
