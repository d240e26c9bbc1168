"""Debian's Prometheus and its `promtool`, installed where they are missing: they check rules, and scrape real jobs."""

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Self

import pytest
import yaml

from buckets.kafka.local_broker import free_port

GIVE_UP_S = 120.0
POLL_S = 0.2


@cache
def installed(name: str) -> str:
    """The path of `prometheus` or `promtool`, which are installed if they are not there; without them CI fails."""
    with (Path(tempfile.gettempdir()) / "buckets-tests-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run at the same time
        if shutil.which(name) is None and shutil.which("apt-get") is not None and os.geteuid() == 0:
            for command in (["update", "-q"], ["install", "-qy", "--no-install-recommends", "prometheus"]):
                subprocess.run(["apt-get", *command], check=True, capture_output=True)
    path = shutil.which(name)
    if path is None and not os.environ.get("CI"):
        pytest.skip(f"needs {name}: apt-get install prometheus")
    assert path is not None, f"needs {name}: apt-get install prometheus"
    return path


def promtool(*arguments: str | Path) -> str:
    """What promtool says, which finds nothing wrong."""
    ran = subprocess.run([installed("promtool"), *map(str, arguments)], check=False, capture_output=True, text=True)
    assert ran.returncode == 0, f"{ran.stdout}{ran.stderr}"
    return ran.stdout


def get(url: str) -> tuple[int, str]:
    """The status and text of an answer; 0 where nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


class Prometheus:
    """A Prometheus that scrapes one place every half second, under alert rules; nothing is left after the `with`."""

    def __init__(self, folder: Path, target: str, rules: str) -> None:
        """Write its folder.

        Args:
            folder: its own.
            target: host and port that are scraped.
            rules: the file of alert rules.
        """
        folder.mkdir(parents=True)
        (folder / "rules.yaml").write_text(rules)
        conf = {
            "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [{"job_name": "buckets", "static_configs": [{"targets": [target]}]}],
        }
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(conf))
        self._folder = folder
        self._url = f"http://127.0.0.1:{free_port()}"

    def __enter__(self) -> Self:
        """Start it."""
        command = [installed("prometheus"), "--config.file=prometheus.yaml", "--storage.tsdb.path=data"]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [*command, f"--web.listen-address={self._url.removeprefix('http://')}"],
                cwd=self._folder, stdout=log, stderr=log,
            )  # fmt: skip
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()

    def _ask(self, path: str, **query: str) -> Any:
        status, text = get(f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(query)}")
        return json.loads(text)["data"] if status == 200 else None

    def firing(self) -> set[str]:
        """The alerts that fire."""
        answer = self._ask("alerts") or {"alerts": []}
        return {alert["labels"]["alertname"] for alert in answer["alerts"] if alert["state"] == "firing"}

    def value(self, query: str) -> float | None:
        """What a query gives now, if it gives one number."""
        found = self._ask("query", query=query)
        return float(found["result"][0]["value"][1]) if found and found["result"] else None

    def faults(self) -> Sequence[str]:
        """What is wrong with its rules, and with scraping."""
        targets = (self._ask("targets") or {"activeTargets": []})["activeTargets"]
        groups = (self._ask("rules") or {"groups": []})["groups"]
        of_rules = [rule["lastError"] for group in groups for rule in group["rules"] if rule.get("lastError")]
        return [target["lastError"] for target in targets if target["lastError"]] + of_rules

    def log(self) -> str:
        """What it has said."""
        return (self._folder / "log").read_text()


def wait_until(condition: Callable[[], bool], else_said: Callable[[], object] = str) -> None:
    """Wait for a condition."""
    given_up_s = time.monotonic() + GIVE_UP_S
    while not condition():
        assert time.monotonic() < given_up_s, else_said()
        time.sleep(POLL_S)


def series(name: str, values: str, **labels: str) -> Mapping[str, str]:
    """Input of `promtool test rules`: one series."""
    written = ", ".join(f'{label}="{value}"' for label, value in labels.items())
    return {"series": f"{name}{{{written}}}", "values": values}
