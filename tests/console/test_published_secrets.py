"""Each secret of each configuration that is published comes from the environment, and its text opens nothing."""

import base64
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from buckets.config.environment import secrets_of
from buckets.config.settings import JobSettings
from buckets.kafka.registry import Registry
from buckets.validation import VARIABLE
from buckets.webhook.delivery import Receiver, signature
from tests.console.served import serving
from tests.docs.blocks import ROOT, blocks_of, page_paths
from tests.docs.yaml_examples import JOB, as_rule_files
from tests.own_certificate import own_certificate
from tests.registry import small_registry
from tests.webhook_server import webhook_server

KEY = base64.b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
SECRETS = {"WEBHOOK_SECRET": f"whsec_{base64.b64encode(KEY).decode()}"}
"""Those that have a form; all others are known by their names."""
_SAMPLE = re.compile(r"^( *)# (\w+: \{.*\$\{.*)$", re.MULTILINE)


def secret(name: str) -> str:
    return SECRETS.get(name, f"the $secret of {name}")


def published() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each configuration that is published, or part of one, with where it stands."""
    for page in page_paths():
        for block in blocks_of(page.read_text(encoding="utf-8")):
            if block.language == "yaml" and not as_rule_files(block.text):
                yield f"{page.stem}:{block.line}", yaml.safe_load(block.text)
    for path in [*(ROOT / "conf").rglob("*.yaml"), ROOT / "deploy" / "compose" / "conf.yaml"]:
        text = _SAMPLE.sub(r"\1\2", path.read_text(encoding="utf-8"))  # what stands in comments to be taken
        yield path.name, yaml.safe_load(text)
    for path in (ROOT / "deploy" / "helm" / "rendered").glob("*.yaml"):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if document and "conf.yaml" in (document.get("data") or {}):
                yield path.name, yaml.safe_load(document["data"]["conf.yaml"])


def variables(value: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Where a configuration names a variable, with its name."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from variables(inner, (*place, name))
    elif isinstance(value, str) and (named := VARIABLE.fullmatch(value)):
        yield place, named[1]


USES = [(where, part, place, name) for where, part in published() for place, name in variables(part)]


def read_token(settings: JobSettings, name: str, conf: Path) -> None:
    """The secret signs in, and the text of the configuration does not."""
    console = settings.console
    person = {} if console.trusted_user_header is None else {console.trusted_user_header: "ann"}
    with serving(conf) as served:
        for token, is_known in ((secret(name), True), (f"${{{name}}}", False), (name, False)):
            served.cookie = ""
            answer = served.ask("/", Authorization=f"Bearer {token}", **person)
            assert (answer.status == 200) == is_known
            if console.trusted_user_header is None:
                served.ask("/sign-in")
                signed_in = served.ask("/sign-in", {"name": "ann", "token": token})
                assert signed_in.status == (303 if is_known else 403)


def read_password(settings: JobSettings, name: str, conf: Path) -> None:
    assert settings.kafka is not None
    assert settings.kafka.librdkafka()["sasl.password"] == secret(name)
    assert secret(name) in settings.kafka.java()["sasl.jaas.config"]


def read_username(settings: JobSettings, name: str, conf: Path) -> None:
    assert settings.kafka is not None
    assert settings.kafka.librdkafka()["sasl.username"] == secret(name)


def read_registry_password(settings: JobSettings, name: str, conf: Path) -> None:
    assert settings.kafka is not None
    assert settings.kafka.registry is not None
    with small_registry() as registry:
        Registry(settings.kafka.registry.model_copy(update={"url": registry.url}), pauses_s=()).schema(1)
        ((_, headers),) = registry.asked
    login = f"{settings.kafka.registry.username}:{secret(name)}"
    assert headers["Authorization"] == f"Basic {base64.b64encode(login.encode()).decode()}"


def read_signature(settings: JobSettings, name: str, conf: Path) -> None:
    assert settings.output.webhook is not None
    with webhook_server() as server:
        receiver = Receiver(settings.output.webhook.model_copy(update={"url": server.url, "ca_file": None}))
        receiver.post("a1", 5, b"{}")
        receiver.close()
        (request,) = server.taken
    at_s = int(request.headers["webhook-timestamp"])
    assert request.headers["webhook-signature"] == signature(KEY, "a1", at_s, b"{}")


READERS: dict[tuple[str, ...], Callable[[JobSettings, str, Path], None]] = {
    ("console", "token"): read_token,
    ("kafka", "security", "username"): read_username,
    ("kafka", "security", "password"): read_password,
    ("kafka", "registry", "password"): read_registry_password,
    ("output", "webhook", "secret"): read_signature,
}


@pytest.mark.parametrize(("where", "part", "place", "name"), USES, ids=[f"{use[0]}-{use[3]}" for use in USES])
def test_a_secret_of_a_published_configuration_is_that_of_the_environment(
    where, part, place, name, recorded, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    own_certificate(Path())  # pages name its `ca.pem`
    for _, each in variables(part):
        monkeypatch.setenv(each, secret(each))
    settings = JobSettings.model_validate(JOB | part)
    conf = recorded.parent / f"published-{abs(hash(where))}.yaml"
    conf.write_text(json.dumps(json.loads(recorded.read_text()) | {"console": part.get("console", {})}))
    READERS[place](settings, name, conf)
    assert (secret(name) in set(secrets_of(settings))) == (READERS[place] is not read_username)


def test_all_secrets_that_are_published_are_tried():
    assert {place for _, _, place, _ in USES} == READERS.keys()
    assert {where for where, *_ in USES} >= {"kafka.yaml", "conf.yaml", "one-pod.yaml"}
