"""The pages of the lint: their examples have the finding, and the mended ones have not."""

import csv
import io
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

import buckets
from buckets.config.engine import EngineSettings
from buckets.events.parquet_rows import table_arrivals
from buckets.events.schema import load_event_schema
from buckets.lint.event_counts import summarise
from buckets.lint.lint import codes, look
from buckets.lint.subject import Subject
from buckets.resources import resource
from buckets.rule_files.yaml_rules import load_rule_file
from tests.core.lint_rules import NOW_MS, payment

CARD_PAYMENT = load_event_schema(resource("schemas/card-payment.yaml"))


def fenced(text: str) -> list[tuple[str, str]]:
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def events_of(code: str, blocks: list[tuple[str, str]]) -> pa.Table | None:
    written = next((text for kind, text in blocks if kind == "csv"), None)
    if written is not None:
        rows: list[dict[str, Any]] = [
            {name: each or None for name, each in row.items()} for row in csv.DictReader(io.StringIO(written))
        ]
    elif "events" in codes()[code].needs:
        rows = [payment(at) for at in range(200)]
    else:
        return None
    table = pa.table({name: pa.array([row[name] for row in rows]) for name in rows[0]})
    if code != "B508":
        return table
    return table.set_column(table.column_names.index("cardId"), "cardId", table["cardId"].cast(pa.float64()))


@pytest.mark.parametrize("code", sorted(codes()))
def test_the_example_on_a_page_has_the_finding_and_the_mended_one_has_not(code, tmp_path):
    text = codes()[code].page
    assert codes()[code].level in ("error", "warning", "note")
    assert text.startswith(f"# {code}: ")
    blocks = fenced(text)
    files = [written for kind, written in blocks if kind == "yaml" and "rules" in yaml.safe_load(written)]
    settings_of = [yaml.safe_load(written) for kind, written in blocks if kind == "yaml" and written not in files]
    engine = EngineSettings.model_validate(settings_of[0]["engine"]) if settings_of else None
    events = events_of(code, blocks)
    codes_of = []
    for written in files:
        path = tmp_path / "rules.yaml"
        path.write_text(written)
        file = load_rule_file(path, CARD_PAYMENT)
        rules = file.rules
        summary = None
        if events is not None:
            arrivals = table_arrivals(events, CARD_PAYMENT)
            summary = summarise(arrivals, rules, CARD_PAYMENT, EngineSettings())
        fields = {rule.rule_id: file.written(rule.rule_id) for rule in rules}
        subject = Subject(rules, NOW_MS, CARD_PAYMENT, engine, summary, fields)
        codes_of.append({finding.code.code for finding in look(subject).findings})
    with_it, mended = codes_of
    assert code in with_it
    assert code not in mended
    assert not {each for each in mended if codes()[each].level == "error"}
    silence = next((written for kind, written in blocks if kind == ""), None)
    assert (silence is None) == ("silence" in codes()[code].needs)
    assert silence is None or yaml.safe_load(silence)["silence"].keys() == {code}


def test_every_page_is_of_a_code():
    pages = {path.stem for path in Path(buckets.__file__).parent.glob("lint/pages/*.md")}
    assert pages == set(codes())
