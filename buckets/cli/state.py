"""The commands `buckets state stats`, `show`, `export` and `import`."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from buckets.checkpoint.job_record import JobRecord
from buckets.checkpoint.lock import check_free
from buckets.checkpoint.rule_versions import RuleVersions
from buckets.cli.console import Terminal, TextTable, echo, echo_report
from buckets.cli.options import AsJson, DryRun
from buckets.cli.progress import StatusLine
from buckets.config.job import load_job
from buckets.duration import format_duration
from buckets.engine.storage.key import key_of_values, key_writer
from buckets.engine.storage.shard_store import split_head_key
from buckets.errors import BucketsError
from buckets.events.schema import EventSchema
from buckets.moment import exact_time_text, iso_text
from buckets.numbers.fixed_point import format_scaled
from buckets.printable import one_line
from buckets.rules.group import Group
from buckets.state_transfer.export_manifest import KEYS, PAGES, ExportManifest
from buckets.stores.location import in_file_system, location
from buckets.timeline.inspection import CellView

Checkpoint = Annotated[
    Path, typer.Argument(metavar="CHECKPOINT", help="The folder that a configuration names as `checkpoint`.")
]


def stats(
    checkpoint: Checkpoint,
    largest: Annotated[int, typer.Option(min=0, help="How many of the largest keys to show.")] = 10,
) -> None:
    """Show how much state each group has, and its largest keys.

    Works on the checkpoint of a job that has ended and of one that runs.

    Examples:
      buckets state stats demo-out/checkpoint
      buckets state stats demo-out/checkpoint --largest 50
    """
    checkpoint = location(str(checkpoint))
    schema = JobRecord(checkpoint).event_schema()
    groups = RuleVersions(checkpoint).timelines()
    from buckets.spark.session import start_session
    from buckets.spark.state_reader import read_stats

    console = Terminal()
    with console.status("Reading the state…"):
        spark = start_session("buckets state stats", shards=2, checkpoint=checkpoint)
        of_groups, largest_keys = read_stats(spark, checkpoint.resolve(), largest)
    sizes = (">Cells", ">Pages", ">Bytes")
    table = TextTable(f"State of {checkpoint}", ("Group", ">Keys", *sizes, ">Bytes a cell"))
    for size in of_groups:
        name = groups[size.group_id].name if size.group_id in groups else size.group_id
        counts = (size.keys, size.cells, size.pages, size.state_bytes)
        table.add_row(name, *(f"{count:,}" for count in counts), f"{size.state_bytes / size.cells:.1f}")
    console.print(table)
    if not largest_keys:
        return
    table = TextTable("Largest keys", ("Group", "Key", "Clock (UTC)", *sizes))
    for key in largest_keys:
        group_id, encoded = split_head_key(bytes(key.state_key))
        group = groups.get(group_id)
        shown = key_writer(group, schema)(encoded) if group else encoded
        texts = (f"{number:,}" for number in (key.cells, key.pages, key.state_bytes))
        table.add_row(group.name if group else group_id, shown, exact_time_text(key.clock_ms), *texts)
    console.print(table)


def show(
    checkpoint: Checkpoint,
    group: Annotated[
        str, typer.Option(help="The group: its fields, comma-separated, or its whole name as `stats` shows it.")
    ],
    key: Annotated[
        str,
        typer.Option(
            help="The key: the values of the group's fields, in the order in which `stats` names them, with "
            "commas between them; or as JSON, a list or an object as `stats` shows it."
        ),
    ] = "",
    limit: Annotated[int, typer.Option(min=1, help="How many of the newest cells to show.")] = 40,
) -> None:
    """Show the timeline of one key: its raw events and its buckets.

    Examples:
      buckets state show demo-out/checkpoint --group payerId,beneficiaryId --key p017272,b00175
      buckets state show demo-out/checkpoint --group cardId --key c005355 --limit 100
    """
    checkpoint = location(str(checkpoint))
    schema = JobRecord(checkpoint).event_schema()
    chosen = find_group(RuleVersions(checkpoint).groups(), group)
    encoded = encode_key(chosen, key, schema)
    from buckets.spark.session import start_session
    from buckets.spark.state_reader import read_timeline

    console = Terminal()
    with console.status("Reading the state…"):
        spark = start_session("buckets state show", shards=2, checkpoint=checkpoint)
        timeline = read_timeline(spark, checkpoint.resolve(), chosen.state_id, encoded, chosen.text_columns(schema))
    if timeline is None:
        message = f"checkpoint {checkpoint} holds no timeline of group {chosen.name!r} and key {key!r}"
        raise BucketsError(message)
    view, state_bytes = timeline
    events = sum(cell.events for cell in view.cells)
    console.say(
        f"{chosen.name}: {key_writer(chosen, schema)(encoded)}: clock {exact_time_text(view.clock_ms)} UTC, "
        f"{events:,} events in {len(view.cells):,} cells, {len(view.pages):,} pages, {state_bytes:,} bytes, "
        f"codec {view.codec}"
    )
    console.print(timeline_table(view.cells[-limit:], len(view.cells), chosen, schema))


MOST_COLUMNS = 2  # A timeline with more tracks has a line for each of them, and no columns


def timeline_table(cells: tuple[CellView, ...], of: int, group: Group, schema: EventSchema) -> TextTable:
    """Return cells as a table, oldest first."""
    shown = f"the newest {len(cells):,} of {of:,} cells" if len(cells) < of else f"all {of:,} cells"
    in_columns = len(group.measures) <= MOST_COLUMNS
    of_measures = [f">{measure} {name}" for measure in group.measures for name in ("sum", "min", "max")]
    between = of_measures if in_columns else ["Sum, min and max"]
    columns = ("Time (UTC)", "Event or bucket", ">Events", *between, ">Page")
    table = TextTable(f"{shown}, oldest first", columns)
    for cell in cells:
        numbers: list[str] = []
        for column, measure in enumerate(group.measures):
            scale = group.digits(measure, schema)
            least, greatest = cell.least[column], cell.greatest[column]
            total = least if isinstance(least, str | None) else cell.plus[column] - cell.minus[column]
            texts = [_shown(value, scale) for value in (total, least, greatest)]
            numbers += texts if in_columns else [f"{measure}: {', '.join(texts)}"]
        span = format_duration(cell.last_ms - cell.first_ms)
        what = cell.event_id if cell.event_id is not None else f"bucket, events over {span}"
        values = numbers if in_columns else ["\n".join(numbers)]
        page = "head" if cell.page is None else str(cell.page)
        table.add_row(exact_time_text(cell.first_ms), what, f"{cell.events:,}", *values, page)
    return table


def _shown(value: int | str | None, scale: int) -> str:
    if isinstance(value, str):
        return one_line(value)
    return "none" if value is None else format_scaled(value, scale)


def find_group(groups: dict[str, Group], wanted: str) -> Group:
    """Find the group that an option names."""
    fields = {field.strip() for field in wanted.split(",") if field.strip()}
    meant = [group for group in groups.values() if wanted in (group.name, group.group_id)]
    meant = meant or [group for group in groups.values() if set(group.fields) == fields]
    if len(meant) == 1:
        return meant[0]
    names = "; ".join(sorted(group.name for group in meant or groups.values()))
    fault = "names several groups" if meant else "is not a group of this checkpoint"
    message = f"--group: {wanted!r} {fault}; write one of: {names}"
    raise BucketsError(message)


def encode_key(group: Group, written: str, schema: EventSchema) -> str:
    """Read the key that an option names."""
    try:
        values: Any = written.split(",") if written or group.fields else []
        if written[:1] in ("[", "{"):
            values = json.loads(written)
        if isinstance(values, dict):
            if set(values) != set(group.counted_fields):
                message = f"it names {', '.join(values)}"
                raise ValueError(message)
            values = [values[field] for field in group.counted_fields]
        texts = [value if isinstance(value, str) else json.dumps(value) for value in values]
        return key_of_values(group, texts, schema)
    except ValueError as error:
        message = (
            f"--key: {written!r} is not a key of group {group.name!r} ({error}); "
            f"write a value for each of {', '.join(group.counted_fields) or 'no fields'}, with commas between them, "
            "in this order, or the key as `stats` shows it"
        )
        raise BucketsError(message) from None


def export_command(
    origin: Annotated[
        Path,
        typer.Argument(metavar="CONF|CHECKPOINT", help="A configuration, or the folder that it names as `checkpoint`."),
    ],
    to: Annotated[Path, typer.Option(help="A new folder, for the Delta tables.", callback=in_file_system)],
    as_json: AsJson = False,
) -> None:
    """Write the state of a job that is stopped into a folder of Delta tables.

    With `buckets state import` a job goes on from there under other
    settings: more shards, other partitions, another lateness.
    The checkpoint stays as it is.

    Examples:
      buckets state export conf/demo.yaml --to demo-out/export
      buckets state export demo-out/checkpoint --to demo-out/export --json
    """
    origin = location(str(origin))
    checkpoint = origin.resolve() if origin.is_dir() else load_job(origin).checkpoint
    JobRecord(checkpoint).event_schema()
    check_free(checkpoint)
    from buckets.spark.session import start_session
    from buckets.spark.state_carry import export_state

    with StatusLine(Terminal(stderr=True)) as progress:
        spark = start_session("buckets state export", shards=2, checkpoint=checkpoint)
        manifest = export_state(spark, checkpoint, to.resolve(), progress.on_phase)
    if as_json:
        written = manifest.model_dump(mode="json", exclude={"made_ms"})
        echo_report(written | {"made_at": iso_text(manifest.made_ms)})
        return
    keys, pages = manifest.tables[KEYS].rows, manifest.tables[PAGES].rows
    echo(f"{to}: {keys:,} keys and {pages:,} pages, after batch {manifest.batch_id}")


def import_command(
    export: Annotated[Path, typer.Argument(metavar="EXPORT", help="A folder that `buckets state export` has written.")],
    conf: Annotated[Path, typer.Option(help="The new configuration; its checkpoint must be a new folder.")],
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Make the checkpoint of a configuration, with the state of an export.

    The job goes on after the last batch of the export: with its state, its
    place in the source, its rules and lists with their versions. Results go
    on in the output folder of the old checkpoint, which belongs to the new
    one from then on, or begin in a new one.

    Examples:
      buckets state import demo-out/export --conf conf/more-shards.yaml --dry-run
      buckets state import demo-out/export --conf conf/more-shards.yaml
    """
    job = load_job(conf)
    folder = export.resolve()
    ExportManifest.read(folder)
    from buckets.spark.prepared_job import job_session
    from buckets.spark.state_carry import check_target, import_state, plan_of

    plan = plan_of(folder, job)
    check_target(job, plan.manifest)
    if not dry_run:
        with StatusLine(Terminal(stderr=True)) as progress:
            import_state(job_session(job), folder, job, plan, progress.on_phase)
    manifest = plan.manifest
    keys = manifest.tables[KEYS].rows
    if as_json:
        report = {
            "imported": not dry_run,
            "checkpoint": str(job.checkpoint),
            "from": manifest.checkpoint,
            "batch_id": manifest.batch_id,
            "keys": keys,
            "ruleset_version": plan.rule_set.version,
            "differences": list(plan.differences),
        }
        echo_report(report)
        return
    for line in plan.differences or ("nothing is different but the checkpoint",):
        echo(f"- {line}")
    what = "would get" if dry_run else "has"
    echo(f"{job.checkpoint} {what} the state of {keys:,} keys, after batch {manifest.batch_id}")
