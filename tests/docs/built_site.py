"""The documentation as a site, built in a folder of a test's own."""

import shutil
from pathlib import Path

import pytest

from docs import build


def build_site(folder: Path) -> Path:
    """Build the site below a folder; return where it is."""
    with pytest.MonkeyPatch.context() as patch:
        shutil.copy(build.FOLDER / "zensical.toml", folder)
        patch.setattr(build, "CONFIGURATION", folder / "zensical.toml")
        patch.setattr(build, "SOURCES", folder / ".build" / "pages")
        patch.setattr(build, "BUILT", folder / ".build" / "site")
        patch.setattr(build, "SITE", folder / "site")
        build.main()
    return folder / "site"
