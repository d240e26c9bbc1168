"""Waits until a server of the tests answers."""

import time
import urllib.error
import urllib.request
from http import HTTPStatus
from pathlib import Path

WITHIN_S = 30.0


def wait_for_answer(url: str, log: Path) -> None:
    """Wait for an answer, if only that one has to log in; what the server has said goes into the failure."""
    ends_s = time.monotonic() + WITHIN_S
    while not _answers(url):
        assert time.monotonic() < ends_s, log.read_text(encoding="utf-8")[-2000:]
        time.sleep(0.05)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1):
            return True
    except urllib.error.HTTPError as error:
        return error.code < HTTPStatus.INTERNAL_SERVER_ERROR
    except OSError:
        return False
