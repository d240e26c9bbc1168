"""Whatever a receiver answers: an attempt ends by its deadline, reports the answer, and spoils no later attempt."""

import time
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buckets.config.output import WebhookSettings
from buckets.webhook.delivery import Attempt, Receiver
from tests.hostile_receiver import HostileReceiver, Step, hostile_receiver
from tests.laws import examples

LONG, SHORT = "20s", "150ms"
WITHIN_S = 10.0
"""Much less than a receiver goes on, and more than a short deadline on a busy machine."""
MOST_TAKEN = 32 << 20
"""A flood is not read on; what the kernel takes for itself is megabytes."""
REASONS = [b" OK", b"", b" ", b" " + b"x" * 500, " Zoë".encode("latin-1"), b" \t"]
CODES = [200, 201, 202, 204, 299, 300, 301, 304, 307, 400, 401, 404, 408, 413, 415, 422, 429, 500, 503, 599]
PAUSES = [
    b"0", b"5", b"007", b"3600", b"3601", b"9" * 5_000, b"0" * 5_000 + b"7", b"-1", b"1.5", b"1e9", b"", b"Infinity",
    "٣".encode(), "²".encode("latin-1"), b"Wed, 21 Oct 2099 07:28:00 GMT", b"soon", b"5, 6", b"\xff\xfe",
]  # fmt: skip
READ = {b"0": 0, b"5": 5, b"007": 7, b"3600": 3600, b"3601": 3600, b"9" * 5_000: 3600, b"0" * 5_000 + b"7": 7}
"""What is read of the pauses that are numbers."""
INFORMATIONAL = [
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 102 Processing\r\nX: y\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nLink: </b>\r\nContent-Length: 7\r\n\r\n",
]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
NONSENSE = [
    *(b"\r\n\r\n", b"\0" * 100, b"SSH-2.0-OpenSSH_9.2\r\n", b"<html>\r\n\r\n", b"x" * 100_000),
    *(b"HTTP/2 200\r\n\r\n", b"HTTP/1.1\r\n\r\n", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"),
    *(b"HTTP/1.1 %s OK\r\n\r\n" % code for code in (b"20", b"2000", b"-20", b"abc", b"9" * 5_000)),
    *(
        b"HTTP/1.1 200 OK\r\n%s\r\n\r\n" % header
        for header in (b"no colon", b": x", b"X: a\0b", b"X: " + b"y" * 100_000)
    ),
    *(b"HTTP/1.1 200 OK\r\nContent-Length: %s\r\n\r\n" % length for length in (b"-1", b"9" * 5_000, b"x")),
    b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: x\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 10_000,
]
ENDLESS = [
    Step("hold"),
    Step("dribble", b"HTTP/1.1 100 Continue\r\n\r\n"),
    Step("flood", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
    Step("dribble", b" "),
    Step("dribble", b"X"),
]


@dataclass
class Answer:
    """What a receiver does, and what may be said of it: a code, or none; with the seconds that it asks for."""

    script: list[Step]
    codes: list[int | None] = field(default_factory=lambda: [None])
    pause_s: float | None = None
    timeout: str = LONG


@st.composite
def nonsense(draw) -> Answer:
    """Not HTTP/1, or only its beginning, or what may not be there."""
    data = draw(st.sampled_from(NONSENSE) | st.binary(max_size=200) | st.sampled_from([OK[:at] for at in range(30)]))
    return Answer([Step("send", data), Step(draw(st.sampled_from(["close", "reset"])))])


@st.composite
def endless(draw) -> Answer:
    """Never comes to its head's end."""
    begun = draw(st.sampled_from([b"", *INFORMATIONAL, b"HTTP/1.1 200 OK\r\nX: y\r\n", b"HTTP/1.1 2"]))
    return Answer([Step("send", begun), draw(st.sampled_from(ENDLESS))], timeout=SHORT)


@st.composite
def heads(draw) -> Answer:
    """A head that has to be understood, in pieces, and after it a body that ends, does not, or is none."""
    code, pause = draw(st.sampled_from(CODES)), draw(st.none() | st.sampled_from(PAUSES))
    head = b"".join(draw(st.lists(st.sampled_from(INFORMATIONAL), max_size=3)))
    head += f"HTTP/1.{draw(st.sampled_from('01'))} {code}".encode() + draw(st.sampled_from(REASONS)) + b"\r\n"
    head += b"" if pause is None else b"Retry-After: " + pause + b"\r\n"
    head += draw(st.sampled_from([b"", b"Connection: close\r\n", b"Connection: keep-alive\r\n"]))
    length, body, after = draw(st.sampled_from(BODIES))
    data = head + length + b"\r\n" + body
    cut = draw(st.integers(0, len(data)))
    pieces = [Step("send", data[:cut]), Step("pause"), Step("send", data[cut:])]
    codes = [code, None] if after.does in ("hold", "dribble", "flood") else [code]
    return Answer([*pieces, after], codes, READ.get(pause), SHORT if None in codes else LONG)


CHUNKED = b"Transfer-Encoding: chunked\r\n"
GOES_ON = Step("pause")
BODIES = [
    (b"Content-Length: 2\r\n", b"ok", GOES_ON),
    (b"Content-Length: 0\r\n", b"", Step("close")),
    (b"Content-Length: 0\r\n", OK, GOES_ON),  # an answer to nothing that was asked
    (b"Content-Length: 0\r\n", OK * 10_000, Step("close")),
    (b"Content-Length: 9\r\n", b"ok", Step("close")),
    (b"Content-Length: 9\r\n", b"ok", Step("reset")),
    (b"Content-Length: 9\r\n", b"ok", Step("hold")),
    (b"Content-Length: 999999999999\r\n", b"ok", Step("flood", b"x" * 65_536)),
    (b"", b"", Step("close")),
    (b"", b"ok", Step("hold")),
    (b"", b"", Step("dribble", b"x")),
    (b"", OK, Step("flood", b"x" * 65_536)),
    (CHUNKED, b"2\r\nok\r\n0\r\n\r\n", GOES_ON),
    (CHUNKED, b"2;a=b\r\nok\r\n0\r\nTrailer: x\r\n\r\n", GOES_ON),
    (CHUNKED, b"-1\r\n", Step("flood", b"x" * 65_536)),
    (CHUNKED, b"fffffffffffffffff\r\n", Step("flood", b"x" * 65_536)),
    (CHUNKED, b"", Step("flood", b"1\r\nx\r\n" * 10_000)),
    (CHUNKED, b"", Step("dribble", b"1\r\nx\r\n")),
    (CHUNKED, b"0\r\n", Step("flood", b"Trailer: x\r\n" * 5_000)),
    (CHUNKED, b"zz\r\n", Step("close")),
]
"""How long a body is said to be, what of it comes at once, and how it goes on."""


@pytest.fixture(scope="module")
def receiver():
    with hostile_receiver() as hostile:
        yield hostile


def is_as_said(attempt: Attempt, code: int | None, pause_s: float | None) -> bool:
    """Whether an attempt is what follows from a code; None for no answer."""
    if code is None:
        return attempt.outcome == "away" and attempt.reason.startswith("does not answer")
    if code < 300:
        return attempt == Attempt("taken")
    outcome = "refused" if code in (400, 413, 415, 422) else "away"
    return attempt == Attempt(outcome, f"answers {code}", pause_s)


@settings(max_examples=examples(400))
@given(nonsense() | endless() | heads(), st.booleans())
def test_whatever_a_receiver_answers_an_attempt_ends_and_says_what_was_said(receiver: HostileReceiver, answer, is_kept):
    receiver.script, receiver.sent, receiver.asked = answer.script, 0, 0
    ours = Receiver(WebhookSettings.model_validate({"url": receiver.url, "timeout": answer.timeout}))
    if is_kept:
        assert ours.post("before", 1, b"{}").outcome == "taken"
    begun_s = time.monotonic()
    attempt = ours.post("hostile", 2, b"{}")
    assert time.monotonic() - begun_s < WITHIN_S
    assert "\n" not in attempt.reason
    assert len(attempt.reason) < 300
    assert any(is_as_said(attempt, code, answer.pause_s) for code in answer.codes)
    assert receiver.sent < MOST_TAKEN
    for _ in range(2):
        after = ours.post("next", 3, b"{}")
        assert after.reason in ("answers 422", f"does not answer within {SHORT}" if answer.timeout == SHORT else None)
    ours.close()
