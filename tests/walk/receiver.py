"""The webhook of a walk: a receiver that mostly takes alerts, and what must have come of every alert at the end."""

import random
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from buckets.webhook.spool import Spool
from tests.walk.found import Difference
from tests.webhook_server import CLOSE, DROP, WebhookServer, webhook_server

MOODS = (*[200] * 40, *[CLOSE] * 4, 503, DROP)


class AlertReceiver:
    """What has taken alerts, and forgets none."""

    def __init__(self, server: WebhookServer, seed: int) -> None:
        """Take alerts as the dice of a seed have it."""
        dice = random.Random(seed)
        self._server = server
        server.behave = lambda request: dice.choice(MOODS)

    @property
    def settings(self) -> dict[str, Any]:
        """What the configuration says of it."""
        return {"url": self._server.url, "timeout": "2s"}

    @property
    def has_repeats(self) -> bool:
        """Whether an alert came more than once."""
        return len(set(self._server.ids)) < len(self._server.ids)

    def check(self, alert_ids: Collection[str], checkpoints: Collection[Path]) -> None:
        """See that every alert has come, or waits in a checkpoint, and that nothing else has come.

        Raises:
            Difference: it is not so.
        """
        taken = set(self._server.ids)
        spools = [Spool(checkpoint) for checkpoint in checkpoints]
        waiting = {alert.message_id for spool in spools for batch in spool.batches() for alert in spool.waiting(batch)}
        lost, strange = set(alert_ids) - taken - waiting, taken - set(alert_ids)
        if lost or strange:
            message = f"webhook: {len(lost)} alerts were lost: {sorted(lost)[:3]}; {len(strange)} are in no table"
            raise Difference(message)


@contextmanager
def alert_receiver(seed: int) -> Iterator[AlertReceiver]:
    """A receiver, until the end of the block."""
    with webhook_server() as server:
        yield AlertReceiver(server, seed)
