"""A feature server as people build it: lists of payments by key in Redis, and a service that adds them up in the call.

    python bench/serve_peer.py RULES REDIS_PORT (PORT | PAYMENTS)

It listens on a port, or adds the payments of a file. Its Python has redis, hiredis, uvicorn, httptools and uvloop.

Each rule has a sorted set for each key: the members are ids with amounts, in the order of their times. A call reads, in
one round trip, what lies in the window of each; `mode=check` writes nothing, else the payment is added before, and what
has left the window goes. The windows are those of the product, to the millisecond.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import redis
import redis.asyncio
import uvicorn

UNITS_MS = {"m": 60_000, "h": 3_600_000}
LATE_MS = 3_600_000
AT_ONCE = 2_000
Rule = tuple[str, str, list[str], int, int]  # Its id, function and fields, how long its window is, and the limit


def read_rules(path: Path) -> list[Rule]:
    """The rules of a file."""
    return [
        (
            rule["rule_id"],
            rule["aggregate"]["function"],
            rule["group_by"],
            int(rule["window"]["length"][:-1]) * UNITS_MS[rule["window"]["length"][-1]],
            rule["limit"]["value"],
        )
        for rule in json.loads(path.read_bytes())
    ]


def places(rules: list[Rule], payment: Mapping[str, Any]) -> list[str]:
    """Where the payments of each rule lie."""
    return [f"{rule_id}:" + "|".join(payment[name] for name in fields) for rule_id, _, fields, _, _ in rules]


def value_of(function: str, amounts: list[int]) -> float:
    """A value of the amounts in a window, of which there is at least one."""
    if function == "count":
        return len(amounts)
    if function == "max":
        return max(amounts)
    return sum(amounts) if function == "sum" else sum(amounts) / len(amounts)


class Server:
    """Answers calls, as ASGI has it."""

    def __init__(self, rules: list[Rule], redis_port: int) -> None:
        self._rules, self._redis = rules, redis.asyncio.Redis(port=redis_port)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        is_check = parse_qs(scope["query_string"].decode()).get("mode") == ["check"]
        answer = json.dumps(await self._answer(json.loads(body), is_check)).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    async def _answer(self, payment: Mapping[str, Any], is_check: bool) -> dict[str, Any]:
        at_ms, member = payment["ts"], f"{payment['event_id']}:{payment['amount']}".encode()
        async with self._redis.pipeline(transaction=not is_check) as pipeline:
            for key, (_, _, _, window_ms, _) in zip(places(self._rules, payment), self._rules, strict=True):
                if not is_check:
                    pipeline.zadd(key, {member: at_ms})
                    pipeline.zremrangebyscore(key, "-inf", at_ms - window_ms - LATE_MS)
                pipeline.zrangebyscore(key, f"({at_ms - window_ms}", at_ms)
            replies = await pipeline.execute()
        values = {}
        for rule, members in zip(self._rules, replies if is_check else replies[2::3], strict=True):
            amounts = [int(each.rpartition(b":")[2]) for each in members if each != member]
            values[rule[0]] = value_of(rule[1], [*amounts, payment["amount"]])
        return {"decision": {"fired": [rule[0] for rule in self._rules if values[rule[0]] > rule[4]]}, "values": values}


def fill(rules: list[Rule], redis_port: int, path: Path) -> None:
    """Add payments, as far as windows hold them at the last of them."""
    client, lines = redis.Redis(port=redis_port), path.read_bytes().splitlines()
    last_ms = json.loads(lines[-1])["ts"]
    for begin in range(0, len(lines), AT_ONCE):
        pipeline = client.pipeline(transaction=False)
        for payment in map(json.loads, lines[begin : begin + AT_ONCE]):
            for key, (_, _, _, window_ms, _) in zip(places(rules, payment), rules, strict=True):
                if payment["ts"] > last_ms - window_ms - LATE_MS:
                    pipeline.zadd(key, {f"{payment['event_id']}:{payment['amount']}": payment["ts"]})
        pipeline.execute()
    print(client.dbsize())


def main() -> None:
    """Serve, or fill."""
    rules, redis_port, what = read_rules(Path(sys.argv[1])), int(sys.argv[2]), sys.argv[3]
    if what.isdecimal():
        server = Server(rules, redis_port)
        uvicorn.run(server, port=int(what), log_level="warning", access_log=False, lifespan="off")
    else:
        fill(rules, redis_port, Path(what))


if __name__ == "__main__":
    main()
