"""The commands `buckets state export` and `buckets state import`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from buckets.checkpoint.job_record import JobRecord
from buckets.checkpoint.lock import check_free
from buckets.cli.console import Terminal, echo, echo_report
from buckets.cli.progress import StatusLine
from buckets.config.job import Job, load_job
from buckets.moment import iso_text
from buckets.state_transfer.export_manifest import KEYS, PAGES, CarryPlan, ExportManifest, parse_names
from buckets.stores.location import in_file_system, location

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


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
    settings: more shards, other partitions, another lateness, renamed fields.
    The checkpoint stays as it is.

    \b
    Examples:
      buckets state export conf/demo.yaml --to demo-out/export
      buckets state export demo-out/checkpoint --to demo-out/export --json
    """  # noqa: D301 - click needs the backspace itself
    origin = location(str(origin))
    checkpoint = origin.resolve() if origin.is_dir() else load_job(origin).checkpoint
    JobRecord(checkpoint).event_schema()
    check_free(checkpoint)
    from buckets.spark.session import start_session
    from buckets.spark.state_export import export_state

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
    rename: Annotated[
        list[str] | None, typer.Option(metavar="OLD=NEW", help="A field that has another name from now on; repeatable.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be carried, and write nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make the checkpoint of a configuration, with the state of an export.

    The job goes on after the last batch of the export: with its state, its
    place in the source, its rules and lists with their versions. Results go
    on in the output folder of the old checkpoint, which belongs to the new
    one from then on, or begin in a new one.

    \b
    Examples:
      buckets state import demo-out/export --conf conf/more-shards.yaml --dry-run
      buckets state import demo-out/export --conf conf/more-shards.yaml
      buckets state import demo-out/export --conf conf/new.yaml --rename payerId=payer
    """  # noqa: D301 - click needs the backspace itself
    names, job = parse_names(rename or ()), load_job(conf)
    folder = export.resolve()
    ExportManifest.read(folder)
    from buckets.spark.prepared_job import job_session
    from buckets.spark.state_import import check_target, import_state, plan_of

    plan = plan_of(folder, job, names)
    check_target(job, plan.manifest)
    if not dry_run:
        with StatusLine(Terminal(stderr=True)) as progress:
            import_state(job_session(job), folder, job, plan, progress.on_phase)
    if as_json:
        echo_report(_as_json(plan, job, dry_run))
        return
    for line in plan.differences or ("nothing is different but the checkpoint",):
        echo(f"- {line}")
    what = "would get" if dry_run else "has"
    keys = plan.manifest.tables[KEYS].rows
    echo(f"{job.checkpoint} {what} the state of {keys:,} keys, after batch {plan.manifest.batch_id}")


def _as_json(plan: CarryPlan, job: Job, dry_run: bool) -> dict[str, Any]:
    manifest = plan.manifest
    return {
        "imported": not dry_run,
        "checkpoint": str(job.checkpoint),
        "from": manifest.checkpoint,
        "batch_id": manifest.batch_id,
        "keys": manifest.tables[KEYS].rows,
        "ruleset_version": plan.rule_set.version,
        "differences": list(plan.differences),
    }
