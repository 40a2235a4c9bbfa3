# The parts of programs that docs/guides/python.md shows. Each sends the id of an order that it inserts.
import json
import os
import urllib.parse

import django
import psycopg
from django.conf import settings
from django.db import connection, models, transaction
from psycopg.types.json import Jsonb
from sqlalchemy import Identity, create_engine, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

url = os.environ["DATABASE_URL"]
parts = urllib.parse.urlsplit(url)

with psycopg.connect(url, autocommit=True) as db:
    with db.transaction():  # psycopg
        db.execute("insert into orders (id, item) values (%s, %s)", (7, "lamp"))
        db.execute("select posthaste.send('orders', %s)", (Jsonb({"order": 7}),))


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(Identity(), primary_key=True)
    item: Mapped[str]


engine = create_engine(url.replace("postgres://", "postgresql+psycopg://"))
order = Order(item="lamp")
with Session(engine) as session, session.begin():
    session.add(order)
    session.flush()  # order.id is known from here on
    session.execute(
        text("select posthaste.send(:queue, cast(cast(:payload as text) as jsonb))"),
        {"queue": "orders", "payload": json.dumps({"order": order.id})},
    )

settings.configure(
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": parts.path.lstrip("/"),
            "USER": parts.username,
            "PASSWORD": parts.password,
            "HOST": parts.hostname,
            "PORT": parts.port,
            "OPTIONS": dict(urllib.parse.parse_qsl(parts.query)),
        }
    }
)
django.setup()


class DjangoOrder(models.Model):
    id = models.AutoField(primary_key=True)
    item = models.TextField()

    class Meta:
        app_label = "shop"
        db_table = "orders"


order = DjangoOrder(item="lamp")
with transaction.atomic():
    order.save()
    with connection.cursor() as cursor:
        cursor.execute(
            "select posthaste.send(%s, %s::text::jsonb)",
            ["orders", json.dumps({"order": order.pk})],
        )

with psycopg.connect(url) as db:
    sent = "select (convert_from(payload, 'UTF8')::json->>'order')::int from posthaste.messages order by 1"
    orders = db.execute("select id from orders order by 1").fetchall()
    if len(orders) != 3 or orders != db.execute(sent).fetchall():
        raise SystemExit(f"orders {orders}, sent {db.execute(sent).fetchall()}")
print("all calls work")
