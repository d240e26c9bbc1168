"""Builds the documentation as a site, from the pages beside this file and from the code: `python -m docs.build`.

1. The pages in `pages`, those of the reference, and the documents at other places of the repository are put together in
   one folder.
2. Zensical makes the site of it. Every link is checked, and a broken one ends the build.
3. The site takes the place of an earlier one inside the package, from where a wheel takes it along.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from buckets.errors import BucketsError
from buckets.resources import SITE, built_site
from docs.reference.pages import PAGES

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs"
CONFIGURATION = FOLDER / "zensical.toml"
SOURCES, BUILT = FOLDER / ".build" / "pages", FOLDER / ".build" / "site"
DOCUMENTS = {
    "buckets/DESIGN.md": "explanation/decisions.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Documents that stay where they are in the repository, and their pages on the site."""
PICTURES = ("bench/results/peers.png", "bench/results/flatness.png")
"""Plots of measurements that pages show."""
_LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)")


def main() -> None:
    """Build the site and say where it is."""
    put_together(SOURCES)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    ended = subprocess.run([*command, "--config-file", str(CONFIGURATION)], cwd=CONFIGURATION.parent, check=False)
    if ended.returncode != 0 or not (BUILT / "index.html").is_file():
        message = "the site was not built; what is wrong stands above"
        raise SystemExit(message)
    shutil.rmtree(SITE, ignore_errors=True)
    shutil.copytree(BUILT, SITE)
    print(f"the documentation is in {built_site()}")


def put_together(folder: Path) -> None:
    """Write all pages of the site into a folder, as Markdown.

    Raises:
        BucketsError: a document links to something that is no page.
    """
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(FOLDER / "pages", folder)
    for name, write in PAGES.items():
        _write(folder / name, write())
    for document, page in DOCUMENTS.items():
        _write(folder / page, document_page(document, page))
    for picture in PICTURES:
        (folder / "pictures").mkdir(exist_ok=True)
        shutil.copy(ROOT / picture, folder / "pictures")


def document_page(document: str, page: str) -> str:
    """Return a document of the repository with the links that it has as a page of the site."""
    up = "../" * page.count("/")

    def link(match: re.Match[str]) -> str:
        target = (ROOT / document).parent.joinpath(match[1]).resolve().relative_to(ROOT).as_posix()
        if target in DOCUMENTS:
            return f"]({up}{DOCUMENTS[target]}"
        if target.startswith("docs/pages/"):
            return f"]({up}{target.removeprefix('docs/pages/')}"
        message = f"{document}: links to {match[1]}, which is no page of the site"
        raise BucketsError(message)

    return _LINK.sub(link, (ROOT / document).read_text(encoding="utf-8"))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
