"""The command `buckets size`: what a job needs before it has run, and what breaks first."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from buckets.cli.console import Terminal, TextTable, echo_report
from buckets.cli.options import AsJson, JobConf, given_rules, read_option
from buckets.config.engine import precision_faults
from buckets.config.job import Job, load_job, of_configuration, rules_faults
from buckets.config.settings import RuleSettings
from buckets.duration import SECOND_MS, spoken_duration
from buckets.errors import refuse
from buckets.numbers.fixed_point import percent_text
from buckets.size.constants import FITTED, TERM_WORDS, read_constants
from buckets.size.forecast import LIMITS, Forecast, amount_text, forecast, size_text
from buckets.size.workload import Cluster, SizeQuestion, notes_of, parse_keys, parse_number, workload_of

_TEXT_BYTES = 16
_ITEMS = 8
_LEAST_SHARE = 0.005


def size(
    conf: JobConf,
    rate: Annotated[str, typer.Option(help="Events a second, as in 20000, 20k or 1M.")],
    keys: Annotated[
        list[str],
        typer.Option(
            help="Distinct keys per grouping, as in 50M; for one grouping payerId=50M or payerId,cardId=80M. "
            "May be given several times."
        ),
    ],
    rules: Annotated[
        Path | None, typer.Option(help="A rule file, or a folder of them, instead of the rules of the configuration.")
    ] = None,
    cores: Annotated[
        int | None, typer.Option(min=1, help="Cores that score, instead of those of the configuration.")
    ] = None,
    text_bytes: Annotated[
        int, typer.Option(min=1, max=1_000, help="Average length of event ids and of grouping values, in bytes.")
    ] = _TEXT_BYTES,
    constants: Annotated[
        Path, typer.Option(help="Constants of another machine, as bench/size.py writes them.", show_default=False)
    ] = FITTED,
    as_json: AsJson = False,
) -> None:
    """Predict cores, memory, state, traffic and delay of a job.

    Nothing is started. The numbers follow from the rules, shards, trigger and
    Spark settings of the configuration, and from constants fitted on one
    machine. All keys are assumed to be equally busy; if some are much busier,
    the state of fewer keys has to be read from the store, and a job needs less.
    Each grouping has the keys of --keys, and gets every event.

    Examples:
      buckets size conf/demo.yaml --rate 20000 --keys 50M
      buckets size conf/kafka.yaml --rules conf/demo-rules.yaml --rate 2k --keys 1M
      buckets size conf/demo.yaml --rate 2k --keys 1M --keys payerId=5M --cores 16
      buckets size conf/demo.yaml --rate 20000 --keys 50M --constants ours.yaml --json
    """
    asked = SizeQuestion(
        rate=read_option("--rate", rate, parse_number),
        keys=read_option("--keys", "", lambda _: parse_keys(keys)),
        text_bytes=text_bytes,
        cores=cores,
        machine=Cluster(os.cpu_count() or 1, 1, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
    )
    job = load_job(conf)
    if rules is not None:
        job = _with_rules(conf, job, rules)
    found = forecast(workload_of(job, asked), read_constants(constants))
    if as_json:
        echo_report(_report(found, notes_of(job)))
    else:
        _show(found, notes_of(job))


@of_configuration()
def _with_rules(conf: Path, job: Job, path: Path) -> Job:
    schema, rules = job.event_schema, given_rules(path, job.event_schema)
    settings = job.settings.model_copy(update={"rules": RuleSettings(path=str(path))})
    refuse(precision_faults(f"configuration {conf}", rules, settings.engine, schema))
    refuse(rules_faults(conf, settings, schema, rules))
    return job.model_copy(update={"settings": settings, "rules": rules})


def _needs(found: Forecast) -> list[tuple[str, str]]:
    batch, workload = found.batch, found.workload
    delay = spoken_duration(found.delay_s * SECOND_MS) if found.keeps_up else "grows: batches do not keep up"
    return [
        (
            "Cores",
            f"{amount_text(found.cores)} with a share to spare; busy at this trigger: Python "
            f"{amount_text(found.python_cores)}, Java {amount_text(found.jvm_cores)}",
        ),
        ("Memory of all processes", f"{size_text(found.memory_bytes)}, {size_text(found.known_bytes)} of it for keys"),
        ("State", f"{size_text(found.state.state_bytes)} of {amount_text(found.living_keys)} keys"),
        (
            "Keys in memory",
            f"{percent_text(found.remembered)} of those that come, the others are cold; "
            f"all would take {size_text(found.state.memory_bytes)}",
        ),
        (
            "Written into the checkpoint",
            f"{size_text(found.put_bytes_s)} a second, and what the store writes of its own besides",
        ),
        (
            "A batch",
            f"{amount_text(batch.rows)} events every {spoken_duration(found.period_s * SECOND_MS)}; "
            f"takes {spoken_duration(found.duration_s * SECOND_MS)} on {workload.cluster.cores:,} cores",
        ),
        ("Delay of an event, on average", delay),
    ]


def _show(found: Forecast, notes: list[str]) -> None:
    terminal = Terminal()
    terminal.print(TextTable("What the job needs", ("Of", "How much"), _needs(found)))
    bill = TextTable("Where its CPU goes", ("For", ">A second", ">us each", ">Cores", ">Share"))
    busy = found.python_cores + found.jvm_cores
    for item in found.bill[:_ITEMS]:
        if item.cores >= _LEAST_SHARE * busy:
            share = percent_text(item.cores / busy)
            each = amount_text(item.each_us)
            bill.add_row(TERM_WORDS[item.name], amount_text(item.count_s), each, amount_text(item.cores), share)
    terminal.print(bill)
    limits = TextTable("What breaks first", ("Bound", ">Needed", ">There is", ">Used", "Mostly for"))
    for limit in found.limits:
        write = size_text if limit.name in ("memory", "disk") else amount_text
        used = percent_text(limit.used) if limit.used < 10 else f"{amount_text(limit.used)} times"
        needed, there = write(limit.needed), write(limit.there)
        limits.add_row(LIMITS[limit.name][0], needed, there, used, TERM_WORDS.get(limit.by, ""))
    terminal.print(limits)
    first = found.limits[0]
    if first.used > 1:
        why = f", mostly for {TERM_WORDS[first.by]}" if first.by else ""
        bound, advice = LIMITS[first.name]
        terminal.say(f"First: {bound}{why}. What helps: {advice}.")
    for note in notes:
        terminal.say(f"Not in these numbers: {note}.")
    machine = found.constants.machine
    terminal.say(f"Constants of {machine.get('cpu', 'a machine')}, fitted {found.constants.fitted}.")


def _report(found: Forecast, notes: list[str]) -> dict[str, Any]:
    return {
        "cores": found.cores,
        "python_cores": found.python_cores,
        "jvm_cores": found.jvm_cores,
        "memory_bytes": found.memory_bytes,
        "state_bytes": found.state.state_bytes,
        "keys": found.living_keys,
        "keys_in_memory": found.remembered,
        "put_bytes_per_second": found.put_bytes_s,
        "batch_events": found.batch.rows,
        "batch_every_ms": found.period_s * SECOND_MS,
        "batch_ms": found.duration_s * SECOND_MS,
        "keeps_up": found.keeps_up,
        "delay_ms": found.delay_s * SECOND_MS if found.keeps_up else None,
        "bill": [asdict(item) for item in found.bill],
        "limits": [asdict(limit) | {"used": limit.used} for limit in found.limits],
        "not_included": notes,
        "constants": {"machine": found.constants.machine, "fitted": found.constants.fitted},
    }
