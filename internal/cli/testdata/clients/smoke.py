"""Uses the API through the client that openapi-python-client generated."""

import sys

from api import Client
from api.api.dead_letters import replay_dead_letter
from api.api.deliveries import ack_delivery, fail_delivery, receive
from api.api.messages import list_queue_messages, send_message, send_messages, show_message
from api.api.queues import put_queue
from api.models import AckOne, FailOne, NewBackoff, NewMessage, NewMessages, NewQueueOptions, Problem, ReceiveRequest, State
from api.types import UNSET

client = Client(base_url=sys.argv[1])


def must(what, answer):
    assert answer is not None and not isinstance(answer, Problem), f"{what}: {answer}"
    return answer


def same(what, is_, want):
    assert is_ == want, f"{what} is {is_}, want {want}"


queue = "python"
must("create", put_queue.sync(queue, client=client, body=NewQueueOptions(max_attempts=3, backoff=NewBackoff(base="1s"))))
sent = must("send", send_message.sync(queue, client=client, body=NewMessage(payload={"n": 1}, kind="made")))
batch = must("send many", send_messages.sync(queue, client=client, body=NewMessages([NewMessage(payload=2), NewMessage(payload=None, delay="PT1H")])))

ids, cursor, more = [], UNSET, True
while more:
    page = must("list", list_queue_messages.sync(queue, client=client, limit=1, cursor=cursor))
    ids += [message.id for message in page.data]
    cursor, more = page.next_, page.has_more
same("the list", ids, [batch.ids[1], batch.ids[0], sent.id])

received = must("receive", receive.sync(queue, client=client, body=ReceiveRequest(max_=2, lease="1m")))
same("received", [(d.message_id, d.attempt, d.max_attempts) for d in received.deliveries], [(sent.id, 1, 3), (batch.ids[0], 1, 3)])
must("ack", ack_delivery.sync(received.deliveries[0].id, client=client, body=AckOne(receipt={"ok": True})))
must("fail", fail_delivery.sync(received.deliveries[1].id, client=client, body=FailOne(error="no", permanent=True)))
must("replay", replay_dead_letter.sync(batch.ids[0], client=client))
replayed = must("show", show_message.sync(batch.ids[0], client=client))
same("the replayed message", replayed.subscriptions[0].state, State.READY)
assert replayed.subscriptions[0].replayed_at, "replayed_at is missing"

gone = ack_delivery.sync(received.deliveries[0].id, client=client, body=AckOne())
assert isinstance(gone, Problem) and (gone.code.value, gone.status) == ("conflict", 409), gone
print("ok")
