"""The commands `buckets generate` and `init`: payments with planted fraud, and a folder with all a first job needs."""

import shlex
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from buckets.cli.console import Terminal, echo
from buckets.cli.options import read_option
from buckets.cli.progress import progress_bar
from buckets.duration import parse_duration_ms
from buckets.errors import BucketsError
from buckets.files import write_whole
from buckets.generator import PATTERNS, GeneratorSettings, Stream, WrittenStream, write
from buckets.generator import generate as generate_stream
from buckets.generator.settings import destination
from buckets.resources import DEFAULT_SCHEMA, resource
from buckets.stores.location import in_file_system


def generate(
    out: Annotated[
        Path,
        typer.Option(
            help="A folder for JSON lines, or one file that ends with .jsonl, .csv or .parquet.",
            callback=in_file_system,
        ),
    ],
    transactions: Annotated[int, typer.Option(help="Distinct transactions, planted ones included.")] = 200_000,
    days: Annotated[int, typer.Option(help="Length of the stream.")] = 30,
    seed: Annotated[int, typer.Option(help="The same seed and options give the same bytes.")] = 7,
    fraud_cases: Annotated[int, typer.Option(help="Planted cases of each pattern.")] = 5,
    late_rate: Annotated[float, typer.Option(help="Share that arrives late.")] = 0.005,
    max_delay: Annotated[str, typer.Option(help="The longest delay of late ones.")] = "30m",
    duplicate_rate: Annotated[float, typer.Option(help="Share whose line is repeated.")] = 0.002,
    collision_rate: Annotated[
        float, typer.Option(help="Share with the payer, beneficiary, card and time of another.")
    ] = 0.001,
    malformed_rate: Annotated[float, typer.Option(help="Share of broken lines; JSON lines only.")] = 0.0,
    rows_per_file: Annotated[int, typer.Option(help="Lines in each file of a folder.")] = 20_000,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier stream.")] = False,
) -> None:
    """Write a stream of payments with planted fraud, in the order in which they arrive.

    The truth about the planted cases is written beside it: OUT.truth.jsonl
    next to a folder, STEM.truth.jsonl next to a file. Each case names the rule
    of conf/demo-rules.yaml that catches it, and at which event.

    Examples:
      buckets generate --out stream
      buckets generate --out week.parquet --days 7 --transactions 50000
      buckets generate --out messy --late-rate 0.05 --malformed-rate 0.0002
      buckets generate --out clean.csv --late-rate 0 --duplicate-rate 0
    """
    settings = GeneratorSettings(
        seed=seed,
        transactions=transactions,
        days=days,
        fraud_cases=fraud_cases,
        late_rate=late_rate,
        max_delay_ms=read_option("--max-delay", max_delay, parse_duration_ms),
        duplicate_rate=duplicate_rate,
        collision_rate=collision_rate,
        malformed_rate=malformed_rate,
        rows_per_file=rows_per_file,
    )
    destination(out, malformed_rate > 0, overwrite)
    with progress_bar(Terminal(stderr=True)) as bar:
        task = bar.add_task("Drawing", total=None)
        stream = generate_stream(settings)
        bar.update(task, description="Writing", total=stream.line_count)
        written = write(stream, out, lambda count: bar.update(task, completed=count), overwrite)
    Terminal().print(_summary(stream, written))


def _summary(stream: Stream, written: WrittenStream) -> Table:
    table = Table(title="Written", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column(overflow="fold")
    folder = written.files[0].parent if len(written.files) != 1 else written.files[0]
    table.add_row("files", f"{len(written.files):,}", str(folder))
    table.add_row("lines", f"{written.line_count:,}", "")
    table.add_row("transactions", f"{stream.settings.transactions + stream.counts.collisions:,}", "different ids")
    table.add_section()
    cases = Counter(case.pattern for case in stream.truth)
    table.add_row("planted cases", f"{len(stream.truth):,}", str(written.truth))
    for pattern in PATTERNS:
        table.add_row(f"  {pattern}", f"{cases[pattern]:,}", "")
    table.add_section()
    counts = stream.counts
    table.add_row("late", f"{counts.late:,}", "arrive after later ones")
    table.add_row("duplicates", f"{counts.duplicates:,}", "the very same line again")
    table.add_row("collisions", f"{counts.collisions:,}", "another one at the same time")
    table.add_row("malformed", f"{counts.malformed:,}", "broken lines")
    return table


_FILES = {"conf.yaml": "conf/first/conf.yaml", "rules.yaml": "conf/first/rules.yaml"}
_PAYMENTS = GeneratorSettings(transactions=5_000, days=7, rows_per_file=1_000)


def init(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="A new or empty folder.", callback=in_file_system),
    ],
) -> None:
    """Make a folder with a configuration, an event schema, rules with tests, and payments to try them on.

    Examples:
      buckets init fraud
      cd fraud && buckets run conf.yaml && buckets alerts tables
    """
    texts = {name: resource(source).read_text(encoding="utf-8") for name, source in _FILES.items()}
    texts["schema.yaml"] = DEFAULT_SCHEMA.read_text(encoding="utf-8")
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            message = f"folder {folder}: holds something already; name another one"
            raise BucketsError(message)
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            write_whole(folder / name, text)
    except OSError as error:
        message = f"folder {folder}: cannot be written ({error.strerror}); name another one"
        raise BucketsError(message) from None
    written = write(generate_stream(_PAYMENTS), folder / "payments")
    echo(
        f"{folder} has a configuration, an event schema, rules with tests, and {written.line_count:,} payments. Go on:"
    )
    for command in (
        f"cd {shlex.quote(str(folder))}",
        "buckets rules test rules.yaml --schema schema.yaml",
        "buckets run conf.yaml",
        "buckets alerts tables",
        "buckets console conf.yaml",
    ):
        echo(f"  {command}")
