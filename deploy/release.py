"""Puts a release together in `dist`: `python -m deploy.release`, after `make wheel`.

Wheel and source archive are there already. To them come the lock file of a running job, the chart, the bill of
materials, the image as one file where one was built, and the checksums of all.
"""

import hashlib
import sys
import tarfile
from pathlib import Path

from buckets.errors import BucketsError
from buckets.version import own_version
from deploy.bill import bill_of_materials
from deploy.helm.render import package
from deploy.image.build import LAYOUT
from deploy.image.files import DIST
from deploy.requirements import runtime_requirements

CHECKSUMS = "SHA256SUMS"


def release(dist: Path = DIST) -> list[Path]:
    """Write the files of a release beside its wheel and source archive; returns all of them, the checksums last.

    Raises:
        BucketsError: there is no wheel or no source archive of this version.
    """
    name = f"buckets-{own_version()}"
    files = [dist / f"{name}-py3-none-any.whl", dist / f"{name}.tar.gz"]
    for path in files:
        if not path.is_file():
            message = f"{path}: there is none; run make wheel"
            raise BucketsError(message)
    files.append(_written(dist / f"{name}-requirements.lock", runtime_requirements()))
    files.append(_written(dist / f"{name}.cdx.json", bill_of_materials()))
    files.append(package(dist).rename(dist / f"{name}-chart.tgz"))
    if (dist / LAYOUT).is_dir():
        image = dist / f"{name}-image.tar"
        with tarfile.open(image, "w") as archive:
            for path in sorted((dist / LAYOUT).iterdir()):
                archive.add(path, path.name)
        files.append(image)
    lines = (f"{_sha256(path)}  {path.name}\n" for path in files)
    return [*files, _written(dist / CHECKSUMS, "".join(lines))]


def _written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    try:
        for path in release():
            sys.stdout.write(f"{path}\n")
    except BucketsError as error:
        sys.exit(str(error))
