"""The file into which a command writes what it would print."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from buckets.cli.console import echo
from buckets.config.job import Job
from buckets.errors import BucketsError
from buckets.files import write_whole
from buckets.rule_files.yaml_rules import rule_files
from buckets.stores.location import location


def check_result_files(results: Mapping[str, Path | None], inputs: Iterable[Path | None]) -> None:
    """See that no result, by the option that names it, is one of the files and folders that a command reads.

    Raises:
        BucketsError: a result is an input.
    """
    read = {location(str(path)).resolve() for path in inputs if path is not None}
    for option, given in results.items():
        path = None if given is None else location(str(given))
        if path is not None and path.exists():
            resolved = path.resolve()
            if not read.isdisjoint((resolved, *resolved.parents)):
                message = f"{option} {path}: is read by this command, and would be replaced; name another file"
                raise BucketsError(message)


def check_new_file(out: Path | None) -> None:
    """See that the file of `--out`, if there is one, is a new one.

    Raises:
        BucketsError: it exists.
    """
    if out is not None and location(str(out)).exists():
        message = f"--out {out}: exists already; name a new file"
        raise BucketsError(message)


def job_inputs(conf: Path, job: Job) -> Iterator[Path]:
    """Return the files and folders of a job, its output left out."""
    settings = job.settings
    yield conf
    yield job.schema_path
    yield job.checkpoint
    paths = [settings.source.path, *(each.path for each in settings.lists.values())]
    yield from (location(path) for path in paths if path)
    if settings.archive is not None:
        yield location(settings.archive.path)
    if settings.rules.path is not None:
        yield from rule_files(location(settings.rules.path))


def write_result(option: str, path: Path, text: str) -> None:
    """Write a file, or an object of a store, whole or not at all.

    Raises:
        BucketsError: it cannot be written.
    """
    path = location(str(path))
    try:
        write_whole(path, text)
    except OSError as error:
        message = f"{option} {path}: cannot be written ({error.strerror}); name a file in a folder that is yours"
        raise BucketsError(message) from None


def write_or_print(out: Path | None, text: str, note: str) -> None:
    """Write a text into the file of `--out` and say so, or print it where there is none.

    Raises:
        BucketsError: the file cannot be written.
    """
    if out is None:
        echo(text, nl=False)
    else:
        write_result("--out", out, text)
        echo(note)
