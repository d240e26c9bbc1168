"""Alerts over HTTP: signed, tried again, given up, and none lost whatever the receiver does."""

import base64
import contextlib
import json
import re
import threading
import time

import pytest
from pydantic import ValidationError

from buckets.clock import epoch_ms
from buckets.config.output import WebhookSettings
from buckets.errors import BucketsError
from buckets.kafka.local_broker import free_port
from buckets.outputs.messages import Message
from buckets.webhook.delivery import Delivery, Receiver, signature
from buckets.webhook.spool import Spool
from tests.hostile_receiver import Step, hostile_receiver
from tests.own_certificate import own_certificate
from tests.webhook_server import CLOSE, DROP, HANG, webhook_server

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
KEY = base64.b64decode(SECRET.removeprefix("whsec_"))
WITHIN_S = 20
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


def alerts(*numbers):
    """Alerts, each of a key of its own."""
    return [alert(number, f"[{number}]") for number in numbers]


def alert(number, key):
    return Message(key, json.dumps({"alert_id": f"a{number}", "rule": "Zoë"}), f"a{number}")


def settings(address, **changes):
    return WebhookSettings.model_validate({"url": address, "secret": SECRET, "timeout": "500ms"} | changes)


def wait_until(condition):
    given_up_s = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < given_up_s
        time.sleep(0.005)


@pytest.fixture
def webhook():
    with webhook_server() as server:
        yield server


@pytest.fixture
def said():
    return []


@pytest.fixture
def delivery(tmp_path, webhook, said):
    return Delivery(tmp_path, settings(webhook.url), said.append, first_pause_s=0.01)


def test_the_signature_is_that_of_the_published_example():
    """Source: https://docs.svix.com/receiving/verifying-payloads/how-manual."""
    body = b'{"test": 2432232314}'
    signed = signature(KEY, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_alerts_are_delivered_in_order_signed_with_their_ids(delivery, webhook):
    begun_s = int(time.time())
    with delivery.running():
        delivery.put(3, epoch_ms(), alerts(1, 2))
        delivery.put(5, epoch_ms(), alerts(3))
        wait_until(lambda: len(webhook.taken) == 3)
    assert webhook.ids == ["a1", "a2", "a3"]
    for request in webhook.taken:
        at_s = int(request.headers["webhook-timestamp"])
        assert begun_s <= at_s <= time.time()
        assert request.headers["webhook-signature"] == signature(KEY, request.alert["alert_id"], at_s, request.body)
        assert request.headers["Content-Type"] == "application/json"
    assert delivery.counts() == {"delivered": 3, "failed_attempts": 0, "undelivered": 0, "waiting": 0}


def test_without_a_secret_alerts_are_not_signed(webhook):
    receiver = Receiver(settings(webhook.url, secret=None))
    assert receiver.post("a1", 5, b"{}").outcome == "taken"
    receiver.close()
    assert "webhook-signature" not in webhook.taken[0].headers


def test_a_receiver_that_does_not_answer_does_not_hold_the_end_of_a_job(tmp_path, webhook, said, monkeypatch):
    monkeypatch.setattr("buckets.webhook.delivery._END_WITHIN_S", 0.1)
    webhook.behave = lambda request: HANG
    delivery = Delivery(tmp_path, settings(webhook.url, timeout="1h"), said.append)
    begun_s = time.monotonic()
    with delivery.running():
        delivery.put(1, epoch_ms(), alerts(1))
        wait_until(lambda: webhook.asked)
    assert time.monotonic() - begun_s < WITHIN_S
    assert delivery.counts() == {"delivered": 0, "failed_attempts": 1, "undelivered": 0, "waiting": 1}


@pytest.mark.parametrize("behaviour", [503, 500, 429, 404, 401, 301, (503, {"Retry-After": "0"}), HANG, DROP])
def test_an_alert_is_tried_again_until_it_is_taken_and_those_behind_it_wait(delivery, webhook, said, behaviour):
    webhook.behave = lambda request: behaviour if len(webhook.asked) <= 2 else 200
    with delivery.running():
        delivery.put(1, epoch_ms(), alerts(1, 2))
        wait_until(lambda: len(webhook.taken) == 2)
    assert [request.headers["webhook-id"] for request in webhook.asked] == ["a1", "a1", "a1", "a2"]
    assert delivery.counts()["failed_attempts"] == 2
    assert [line.split(" ")[2] for line in said] == ["does" if isinstance(behaviour, str) else "answers", "takes"]


def test_a_connection_that_was_closed_since_the_last_alert_is_no_failure(delivery, webhook, said):
    webhook.behave = lambda request: CLOSE
    with delivery.running():
        for number in range(3):
            delivery.put(number, epoch_ms(), alerts(number))
            wait_until(lambda number=number: len(webhook.taken) == number + 1)
    assert (webhook.ids, said) == (["a0", "a1", "a2"], [])
    assert delivery.counts()["failed_attempts"] == 0


def test_a_receiver_that_is_not_there_is_waited_for(tmp_path, said):
    port = free_port()
    delivery = Delivery(tmp_path, settings(f"http://127.0.0.1:{port}/alerts"), said.append, first_pause_s=0.01)
    with delivery.running():
        delivery.put(1, epoch_ms(), alerts(1))
        wait_until(lambda: delivery.counts()["failed_attempts"] > 1)
        with webhook_server(port) as webhook:
            wait_until(lambda: webhook.ids == ["a1"])


@pytest.mark.parametrize("code", [400, 413, 415, 422])
def test_an_alert_that_is_refused_is_given_up_at_once_and_kept_with_the_reason(delivery, webhook, said, tmp_path, code):
    webhook.behave = lambda request: code if request.alert["alert_id"] == "a1" else 200
    with delivery.running():
        delivery.put(1, epoch_ms(), alerts(1, 2))
        wait_until(lambda: webhook.ids == ["a2"])
    (given_up,) = map(json.loads, Spool(tmp_path).undelivered.read_text().splitlines())
    assert given_up["alert_id"] == "a1"
    assert given_up["reason"] == f"answers {code}"
    assert given_up["alert"] == {"alert_id": "a1", "rule": "Zoë"}
    assert delivery.counts() == {"delivered": 1, "failed_attempts": 1, "undelivered": 1, "waiting": 0}
    assert said == [f"alert a1 was given up: webhook answers {code}; it is in {Spool(tmp_path).undelivered}"]


def test_an_alert_that_is_too_old_is_given_up_and_the_next_ones_are_not_held_up(tmp_path, webhook, said):
    old = settings(webhook.url, give_up_after="1h")
    webhook.behave = lambda request: 503 if request.alert["alert_id"] in ("a1", "a2") else 200
    delivery = Delivery(tmp_path, old, said.append, first_pause_s=WITHIN_S)
    with delivery.running():
        delivery.put(1, epoch_ms() - 3_600_000, alerts(1, 2))
        delivery.put(2, epoch_ms(), alerts(3))
        wait_until(lambda: webhook.ids == ["a3"])
    assert delivery.counts()["undelivered"] == 2


def test_what_waits_at_the_end_is_delivered_after_the_next_start_and_nothing_twice_that_was_settled(
    tmp_path, webhook, said
):
    first = Delivery(tmp_path, settings(webhook.url), said.append, first_pause_s=WITHIN_S)
    webhook.behave = lambda request: 200 if request.alert["alert_id"] in ("a1", "a2") else 503
    with first.running():
        first.put(7, epoch_ms(), alerts(1, 2, 3))
        first.put(8, epoch_ms(), alerts(4))
        wait_until(lambda: len(webhook.asked) == 3)
    webhook.behave = lambda request: 200
    second = Delivery(tmp_path, settings(webhook.url), said.append)
    assert second.counts()["waiting"] == 2
    second.put(8, epoch_ms(), alerts(4))  # a batch that is run again
    with second.running():
        pass
    assert webhook.ids == ["a1", "a2", "a3", "a4"]
    third = Delivery(tmp_path, settings(webhook.url), said.append)
    third.put(8, epoch_ms(), alerts(4))
    third.put(9, epoch_ms(), [])
    with third.running():
        pass
    assert webhook.ids == ["a1", "a2", "a3", "a4"]
    assert Spool(tmp_path).batches() == []


def test_a_process_that_is_killed_loses_none_and_delivers_again_what_was_not_noted(tmp_path, webhook, said):
    killed = Delivery(tmp_path, settings(webhook.url), said.append)
    killed.put(1, epoch_ms(), alerts(*range(50)))
    spool = Spool(tmp_path)
    for alert in spool.begin(1)[:10]:  # taken by the receiver, and only the first ones noted
        spool.settle(alert)
    spool.keep()
    after = Delivery(tmp_path, settings(webhook.url), said.append)
    with after.running():
        pass
    assert webhook.ids == [f"a{number}" for number in range(10, 50)]


def test_a_batch_that_takes_the_number_of_one_that_was_given_up_is_delivered_whole(tmp_path, webhook, said):
    first = Delivery(tmp_path, settings(webhook.url), said.append)
    first.put(4, epoch_ms(), alerts(1, 2))
    with first.running():
        pass
    second = Delivery(tmp_path, settings(webhook.url), said.append)
    second.put(4, epoch_ms(), alerts(7, 8, 9))
    with second.running():
        pass
    assert webhook.ids == ["a1", "a2", "a7", "a8", "a9"]


@pytest.mark.slow
def test_connections_take_alerts_at_once_those_of_one_key_in_order(tmp_path, webhook, said):
    together = threading.Barrier(4)
    seen = []

    def behave(request):
        seen.append(request.headers["webhook-id"])
        if len(seen) <= 4:
            together.wait(WITHIN_S)  # so that four have to be asked at once
        return 503 if len(seen) % 7 == 0 else 200

    webhook.behave = behave
    # crc32 spreads these keys over all four connections
    rows = [alert(number, f"key {number % 16}") for number in range(200)]
    delivery = Delivery(tmp_path, settings(webhook.url, connections=4, timeout="20s"), said.append, first_pause_s=0.001)
    delivery.put(1, epoch_ms(), rows[:100])
    delivery.put(2, epoch_ms(), rows[100:])
    with delivery.running():
        wait_until(lambda: len(webhook.taken) == 200)
    assert sorted(webhook.ids) == sorted(row.identity for row in rows)
    for key in range(16):
        of_key = [int(each[1:]) for each in webhook.ids if int(each[1:]) % 16 == key]
        assert of_key == sorted(of_key)
    assert {int(each[1:]) < 100 for each in webhook.ids[:100]} == {True}
    assert delivery.counts()["delivered"] == 200
    assert delivery.counts()["waiting"] == 0
    assert Spool(tmp_path).batches() == []


def test_of_several_connections_one_that_is_stuck_holds_up_its_own_keys_and_nothing_is_lost(tmp_path, webhook, said):
    rows = [alert(number, f"key {number % 16}") for number in range(64)]
    webhook.behave = lambda request: 503 if request.headers["webhook-id"] == "a3" else 200
    first = Delivery(tmp_path, settings(webhook.url, connections=8), said.append, first_pause_s=WITHIN_S)
    first.put(1, epoch_ms(), rows)
    with first.running():
        wait_until(lambda: first.counts()["failed_attempts"] == 1 and {"a0", "a1", "a2", "a63"} <= set(webhook.ids))
    assert "a19" not in webhook.ids  # of the same key
    webhook.behave = lambda request: 200
    second = Delivery(tmp_path, settings(webhook.url, connections=2), said.append)
    with second.running():
        pass
    assert set(webhook.ids) == {row.identity for row in rows}
    assert len(webhook.ids) == len(rows)  # also those that were settled behind the one that was stuck


@pytest.mark.slow
def test_an_alert_is_given_up_once_and_of_many_a_line_says_how_many(tmp_path, webhook, said, monkeypatch):
    rows = [alert(number, f"key {number % 16}") for number in range(64)]
    refused = {"a5", "a9", "a41", "a61"}
    webhook.behave = lambda request: (
        422 if request.headers["webhook-id"] in refused else 503 if request.headers["webhook-id"] == "a3" else 200
    )
    first = Delivery(tmp_path, settings(webhook.url, connections=8), said.append, first_pause_s=WITHIN_S)
    first.put(1, epoch_ms(), rows)
    with first.running():
        wait_until(lambda: refused <= {request.headers["webhook-id"] for request in webhook.asked})
    assert [" ".join(line.split()[2:5]) for line in said if line.startswith("alert")] == ["was given up:"]
    assert len([line for line in said if "alerts wait" in line]) == 1
    monkeypatch.setattr("buckets.webhook.delivery._TELL_EVERY_S", 0.0)
    webhook.behave = lambda request: 422 if request.headers["webhook-id"] in refused | {"a3"} else 200
    second = Delivery(tmp_path, settings(webhook.url, connections=2), said.append)
    with second.running():
        pass
    given_up = [json.loads(line)["alert_id"] for line in Spool(tmp_path).undelivered.read_text().splitlines()]
    assert sorted(given_up) == sorted(refused | {"a3"})
    assert sorted({*webhook.ids, *given_up}) == sorted(row.identity for row in rows)
    assert len(webhook.ids) == len(rows) - len(given_up)


def test_a_damaged_file_of_alerts_is_named_in_one_line(tmp_path, webhook, said):
    Spool(tmp_path).put(3, epoch_ms(), alerts(1))
    (file,) = (tmp_path / "buckets" / "webhook").glob("*3.jsonl")
    file.write_text(file.read_text()[:20])
    with pytest.raises(BucketsError, match=re.escape(f"webhook/{file.name} cannot be read")):
        Delivery(tmp_path, settings(webhook.url), said.append)


def test_the_end_does_not_wait_for_a_receiver_that_is_away(tmp_path, webhook, said):
    delivery = Delivery(tmp_path, settings(webhook.url), said.append, first_pause_s=60)
    webhook.behave = lambda request: 503
    begun_s = time.monotonic()
    with delivery.running():
        delivery.put(1, epoch_ms(), alerts(1, 2))
        wait_until(lambda: len(webhook.asked) == 1)
    assert time.monotonic() - begun_s < WITHIN_S
    assert delivery.counts()["waiting"] == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"url": "cases.example.com"},
        {"url": "https://ann:secret@cases.example.com/alerts"},
        {"url": "https://cases.example.com:99999/alerts"},
        {"url": "https://cases.example.com/ä"},
        {"url": "https://[::1/alerts"},
        {"secret": "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
        {"secret": "whsec_c2hvcnQ="},
        {"secret": "whsec_ä"},
        {"timeout": "1ms"},
        {"timeout": "2h"},
        {"connections": 0},
        {"connections": 65},
    ],
)
def test_settings_say_what_is_wrong_and_never_show_the_secret(changes):
    with pytest.raises(ValidationError) as refused:
        settings("https://cases.example.com/alerts", **changes)
    assert "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw" not in str(refused.value.errors(include_input=False))


def test_a_secret_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("WEBHOOK_SECRET", SECRET)
    read = settings("https://cases.example.com/alerts", secret="${WEBHOOK_SECRET}")
    assert read.key == KEY
    assert SECRET not in repr(read)


# --- one deadline for all that an alert waits for -----------------------------------------------------------------


@pytest.fixture
def hostile():
    with hostile_receiver() as server:
        yield server


@pytest.fixture
def receiver_of():
    """Makes receivers, and closes them at the end."""
    with contextlib.ExitStack() as made:

        def make(address, **changes):
            receiver = Receiver(settings(address, **changes))
            made.callback(receiver.close)
            return receiver

        yield make


@pytest.mark.parametrize(
    "step",
    [
        Step("dribble", b"HTTP/1.1 200 OK\r\nX: y"),
        Step("dribble", b"HTTP/1.1 100 Continue\r\n\r\n"),
        Step("flood", b"HTTP/1.1 100 Continue\r\n\r\n"),
        Step("hold"),
    ],
)
@pytest.mark.parametrize("is_kept", [False, True])
def test_a_receiver_that_never_comes_to_an_end_is_left_by_the_deadline(hostile, step, is_kept, receiver_of):
    receiver = receiver_of(hostile.url)
    if is_kept:
        receiver.post("before", 1, b"{}")
    hostile.script = [step]
    begun_s = time.monotonic()
    assert receiver.post("hostile", 1, b"{}").reason == "does not answer within 500ms"
    assert time.monotonic() - begun_s < WITHIN_S
    assert hostile.asked == 1  # it is not tried again in the same attempt


def test_a_pause_of_any_number_of_digits_is_at_most_an_hour(webhook, receiver_of):
    receiver = receiver_of(webhook.url)
    asked = {"9" * 5_000: 3600, "0" * 5_000 + "7": 7, "0": 0, "3601": 3600, "²": None, "-1": None, "soon": None}
    for pause, seconds in asked.items():
        webhook.behave = lambda request, pause=pause: (503, {"Retry-After": pause})
        assert receiver.post("a1", 1, b"{}").pause_s == seconds


@pytest.mark.parametrize("code", [100, 102, 103, 199])
def test_an_informational_answer_is_not_the_answer_and_none_of_the_next_alert(hostile, code, receiver_of):
    hostile.script = [Step("send", b"HTTP/1.1 %d Wait\r\n\r\n" % code), Step("send", OK)]
    receiver = receiver_of(hostile.url, timeout="20s")
    assert receiver.post("hostile", 1, b"{}").outcome == "taken"
    assert receiver.post("next", 2, b"{}").reason == "answers 422"


@pytest.mark.parametrize("between", [Step("send"), Step("pause")])
def test_an_answer_that_nobody_has_asked_for_is_not_taken_for_that_of_the_next_alert(hostile, between, receiver_of):
    hostile.script = [Step("send", OK), between, Step("send", OK)]
    receiver = receiver_of(hostile.url, timeout="20s")
    assert receiver.post("hostile", 1, b"{}").outcome == "taken"
    wait_until(lambda: hostile.sent == 2 * len(OK))
    assert receiver.post("next", 2, b"{}").reason == "answers 422"


def test_a_receiver_that_has_taken_an_alert_and_does_not_end_its_answer_has_taken_it(hostile, receiver_of):
    hostile.script = [Step("send", b"HTTP/1.1 200 OK\r\n\r\n"), Step("hold")]
    receiver = receiver_of(hostile.url)
    assert receiver.post("hostile", 1, b"{}").outcome == "taken"


def test_over_tls_a_connection_is_kept_and_one_who_does_not_speak_it_is_left_by_the_deadline(
    tmp_path, hostile, receiver_of
):
    tls, ca_file = own_certificate(tmp_path)
    with webhook_server(tls=tls) as webhook:
        receiver = receiver_of(webhook.url, timeout="20s", ca_file=str(ca_file))
        assert [receiver.post(f"a{n}", 1, b"x" * 100_000).outcome for n in range(3)] == ["taken"] * 3
        receiver.close()
        assert "CERTIFICATE_VERIFY_FAILED" in receiver_of(webhook.url, timeout="20s").post("a", 1, b"").reason
    silent = receiver_of(hostile.url.replace("http:", "https:"), ca_file=str(ca_file))
    assert silent.post("a1", 1, b"{}").reason == "does not answer within 500ms"


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("is_kept", [False, True])
def test_an_attempt_that_is_broken_off_ends_at_once_and_is_not_made_again(hostile, scheme, is_kept, receiver_of):
    hostile.script = [Step("hold")]
    receiver = receiver_of(hostile.url.replace("http:", f"{scheme}:"), timeout="1h")
    if is_kept and scheme == "http":
        receiver.post("before", 1, b"{}")
    attempts = []
    thread = threading.Thread(target=lambda: attempts.append(receiver.post("hostile", 1, b"{}")))
    thread.start()
    wait_until(lambda: scheme == "https" or hostile.asked)
    given_up_s = time.monotonic() + WITHIN_S
    while thread.is_alive() and time.monotonic() < given_up_s:
        receiver.break_off()
        thread.join(0.05)
    assert [attempt.outcome for attempt in attempts] == ["away"]
    assert hostile.asked <= 1
