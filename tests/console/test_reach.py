"""What people of each role may ask of the console, and what each of its addresses may touch on its machine.

A file with a secret lies beside the job. Its path is handed in wherever something can be: no address opens it, shows
what it holds, or tells whether it is there.
"""

import http.client
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.util import get_temp_dir
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.routing import Mount, Route

from buckets.config.settings import ROLES
from buckets.resources import resource
from tests.console.job_folder import write_job
from tests.console.served import Answer, Served, serving
from tests.console.test_rule_checks import RULE

HEADER = "X-User"
PEOPLE = {"ron": "read", "ann": "analyst", "eve": "admin"}
SECRET = "a-secret-of-the-machine"
OPEN = "nobody"
"""The role of whoever has not signed in."""


@dataclass(frozen=True)
class Reach:
    """What an address may be asked by, with which fields, and what of the job's folder it may write.

    Whoever opens an archive first notes there by which field it is sorted, if nobody has. `starts` says that it asks a
    long question or checks a rule, in a process of its own.
    """

    role: str
    fields: tuple[str, ...] = ()
    writes: str = ""
    starts: bool = False


CHANGE = ("what", "id", "to", "rollout", "version", "until", "key", "text")
TABLE: dict[tuple[str, str], Reach] = {
    ("GET", "/static/"): Reach(OPEN),
    ("GET", "/docs/"): Reach(OPEN),
    ("GET", "/sign-in"): Reach(OPEN),
    ("POST", "/sign-in"): Reach(OPEN, ("name", "token")),
    ("GET", "/metrics"): Reach("read"),
    ("GET", "/"): Reach("read", ("done",)),
    ("GET", "/samples"): Reach("read"),
    ("GET", "/now/live"): Reach("read", ("followed",)),
    ("GET", "/alerts"): Reach("read", ("kind", "rule", "severity", "verdict", "key", "from", "to", "before")),
    ("GET", "/alerts/live"): Reach("read", ("kind", "rule", "severity", "verdict", "key", "from", "to", "before")),
    ("POST", "/alerts/verdict"): Reach("analyst", ("alert", "verdict", "note", "back"), writes="tables"),
    ("GET", "/alert"): Reach("read", ("id",)),
    ("GET", "/alert/explanation"): Reach("read", ("id",), writes="archive/arrivals/_delta_log"),
    ("GET", "/why"): Reach("read", ("event", "rule", "at"), writes="archive/arrivals/_delta_log"),
    ("GET", "/rules"): Reach("read"),
    ("GET", "/rule"): Reach("read", ("id",)),
    ("GET", "/rules/change"): Reach("read", CHANGE),
    ("POST", "/rules/change"): Reach("analyst", (*CHANGE, "reason", "seen"), writes="rules.yaml"),
    ("POST", "/rules/change/preview"): Reach("analyst", CHANGE),
    ("GET", "/rule/edit"): Reach("read", ("id",)),
    ("GET", "/rule/schema"): Reach("read"),
    ("POST", "/rule/check"): Reach("read", ("text",), starts=True),
    ("POST", "/rule/backtest"): Reach("analyst", ("text", "begin", "end", "sweep"), starts=True),
    ("GET", "/key"): Reach("read", ("field", "value", "key")),
    ("GET", "/key/events"): Reach("read", ("field", "value", "key"), writes="archive/arrivals/_delta_log"),
    ("GET", "/lists"): Reach("read"),
    ("GET", "/list"): Reach("read", ("name", "key")),
    ("POST", "/list/preview"): Reach("analyst", ("name", "key", "what", "until", "values")),
    ("POST", "/list/change"): Reach("analyst", ("name", "key", "what", "until", "values", "reason", "seen")),
    ("GET", "/verdicts"): Reach("read"),
    ("GET", "/quality"): Reach("read"),
    ("GET", "/quality/table"): Reach("read"),
    ("GET", "/batches"): Reach("read", ("before", "batch")),
    ("POST", "/batches/replay"): Reach("analyst", ("begin", "end"), starts=True),
    ("GET", "/question"): Reach("read", ("id",)),
    ("GET", "/question/live"): Reach("read", ("id",)),
    ("POST", "/question/cancel"): Reach("analyst", ("id",)),
}
"""By method and address. What of `/rules/change` an admin alone may ask for stands in `PLANS`."""
IN_FORCE = ("promote", "pause", "resume", "trial", "rollback", "apply")
STREAMS = [path for _, path in TABLE if path.endswith("/live")]
ROWS = [pytest.param(*asked, reach, id=" ".join(asked)) for asked, reach in TABLE.items()]
NOTED = ("open", "os.listdir", "os.scandir", "os.remove", "os.rename", "socket.connect")
_opened: list[str] | None = None


def _note(event: str, arguments: tuple) -> None:
    if _opened is not None and event in NOTED:
        _opened.append(str(arguments[1] if event == "socket.connect" else arguments[0]))


sys.addaudithook(_note)


@contextmanager
def noted() -> Iterator[list[str]]:
    """The paths that are opened or listed meanwhile, and the addresses that are connected to."""
    global _opened
    _opened = []
    try:
        yield _opened
    finally:
        _opened = None


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("machine")


@pytest.fixture(scope="module")
def served(place) -> Iterator[Served]:
    (place / "job").mkdir()
    row = {"id": SECRET, "at": 1_767_225_600_000, "payer": SECRET, "amount": "1"}
    (place / "secret.jsonl").write_text(json.dumps(row) + "\n")
    conf = write_job(place / "job", console={"trusted_user_header": HEADER, "roles": PEOPLE})
    with serving(conf) as one:
        yield one


def ask(served: Served, method: str, path: str, person: str | None, fields: dict[str, str]) -> Answer:
    """What is answered to a browser of its own; of a stream its head."""
    browser = Served(served.console)
    headers = {} if person is None else {HEADER.replace("-", "_"): person}
    browser.ask("/rule/edit", **headers)
    if method == "POST":
        return browser.ask(path, fields, **headers)
    asked = path + "?" + "&".join(f"{name}={quote(value)}" for name, value in fields.items())
    if path not in STREAMS:
        return browser.ask(asked, **headers)
    connection = http.client.HTTPConnection(*served.console.listening.getsockname(), timeout=30)
    connection.request("GET", asked, headers={HEADER: person} if person else {})
    response = connection.getresponse()
    text = response.read(200).decode() if response.status != 200 else response.readline().decode()
    connection.close()
    return Answer(response.status, dict(response.getheaders()), text)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _changed(place: Path, before: dict[str, bytes]) -> set[str]:
    """What has changed since: parts of the job's folder that addresses may write, and paths of all else."""
    after = content(place)
    paths = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    parts = {reach.writes for reach in TABLE.values() if reach.writes}
    return {next((part for part in parts if path.startswith(f"job/{part}")), path) for path in paths}


def hostile(place: Path, name: str) -> dict[str, str]:
    """Texts that name a file of the machine, by the way in which they do."""
    return {
        "a path": str(place / name),
        "a path from the job": f"../{name}",
        "an address": f"file://{place / name}",
        "a store": f"s3://{place.name}/{name}",
        "a rule": RULE.replace("mine", str(place / name)),
        "a test": RULE + f"tests: [{{name: one, given: {{file: {place / name}}}, expect: {{alerts: []}}}}]\n",
        "a test from the job": RULE + f"tests: [{{name: one, given: {{file: ../{name}}}, expect: {{alerts: []}}}}]\n",
        "a list": RULE + f"    where: payer IN LIST `{place / name}`\n",
        "a value": RULE + f"    where: payer LIKE '{place / name}'\n",
    }


def test_each_address_of_the_console_is_in_the_table(served):
    there = set()
    for route in served.console.config.app.routes:
        if isinstance(route, Mount) or (isinstance(route, Route) and "{" in route.path):
            there.add(("GET", f"/{route.path.strip('/').split('/')[0]}/"))
        else:
            there |= {(method, route.path) for method in (route.methods or {"GET"}) - {"HEAD"}}
    assert there == TABLE.keys()


@pytest.mark.parametrize(("method", "path", "reach"), ROWS)
def test_an_address_is_answered_from_its_role_on(served, place, method, path, reach):
    people = {OPEN: None} | {role: person for person, role in PEOPLE.items()}
    ranks = [OPEN, *ROLES]
    before = content(place)
    for role, person in people.items():
        answer = ask(served, method, path, person, dict.fromkeys(reach.fields, "x"))
        if person is None and method == "POST":
            assert answer.status == 403, role  # no page has given them the mark of a form
        elif ranks.index(role) >= ranks.index(reach.role):
            assert answer.status in (200, 303, 400, 404), role
            assert "needs the role" not in answer.text, role
        else:
            assert answer.status == (401 if person is None else 403), role
    assert _changed(place, before) <= {reach.writes}


@pytest.mark.parametrize("what", IN_FORCE)
def test_what_is_in_force_is_changed_by_an_admin_alone(served, what):
    for person, role in PEOPLE.items():
        fields = {"what": what, "id": "large", "version": "1", "text": RULE}
        said = ask(served, "GET", "/rules/change", person, fields).text
        assert ("needs the role admin" in said) == (role != "admin")


@pytest.mark.parametrize(("method", "path", "reach"), [row for row in ROWS if row.values[2].fields])
def test_an_address_opens_no_file_that_is_named_and_tells_nothing_of_it(served, place, method, path, reach):
    questions = str(served.console.site.questions._folder)
    own = (
        str(place / "job"),
        sys.prefix,
        sys.base_prefix,
        "/usr/",
        "/proc",
        str(resource("")),
        questions,
        get_temp_dir(),
    )
    before = content(place)
    there, missing = hostile(place, "secret.jsonl"), hostile(place, "nothing.jsonl")
    wanted = {"rule": "large", "what": "apply", "id": "large", "name": "payroll", "field": "payer", "verdict": "fraud"}
    for name in reach.fields:
        for way in there:
            said = []
            for texts in (there, missing):
                usual = {each: wanted.get(each, "") for each in reach.fields if each in wanted}
                with noted() as opened:
                    answer = ask(served, method, path, "eve", usual | {name: texts[way]})
                others = [each for each in opened if not _is_own(each, own, served)]
                strange = [each for each in others if not _is_of_others(each, place)]
                assert strange == [], (name, way)
                assert answer.status in (200, 303, 400), (name, way)
                assert SECRET not in answer.text.replace(texts[way], ""), (name, way)
                said.append(re.sub(r"[0-9a-f]{32,}", "", answer.text.replace("nothing.jsonl", "secret.jsonl")))
            assert said[0] == said[1], (name, way)
    assert _changed(place, before) <= {reach.writes}
    asked = served.console.site.questions
    assert reach.starts or not asked.states()
    for identity in tuple(asked._questions):
        asked.cancel(identity)
    asked._questions.clear()


def _is_of_others(opened: str, place: Path) -> bool:
    """Whether something belongs to a job of another test, whose console may still run."""
    return opened.startswith(str(place.parent)) and not opened.startswith(str(place))


def _is_own(opened: str, own: tuple[str, ...], served: Served) -> bool:
    """Whether something belongs to the job or the program; the test's own connections do."""
    host, port = served.console.listening.getsockname()
    return opened.startswith(own) or opened in (f"('{host}', {port})", "/dev/null") or opened.isdigit()
