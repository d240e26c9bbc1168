"""What goes into an image, in one folder: `python -m deploy.image.files` makes `dist/image`, after `make wheel`."""

import shutil
import sys
from pathlib import Path

from buckets.errors import BucketsError
from buckets.version import own_version
from deploy.requirements import build_requirements, runtime_requirements

DIST = Path(__file__).resolve().parents[2] / "dist"


def put_together(dist: Path = DIST) -> Path:
    """Put the wheel, the locks and the scripts of the image into the folder `image` of `dist`; returns it.

    Raises:
        BucketsError: there is no wheel of this version.
    """
    folder = dist / "image"
    wheels = list(dist.glob(f"buckets-{own_version()}-*.whl"))
    if len(wheels) != 1:
        message = f"{dist} has {len(wheels)} wheels of version {own_version()} and not one: run make wheel"
        raise BucketsError(message)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path in (*wheels, *(Path(__file__).with_name(name) for name in ("install", "entrypoint"))):
        shutil.copy2(path, folder)
    (folder / "build.lock").write_text(build_requirements(), encoding="utf-8")
    (folder / "runtime.lock").write_text(runtime_requirements(), encoding="utf-8")
    return folder


if __name__ == "__main__":
    try:
        put_together()
    except BucketsError as error:
        sys.exit(str(error))
