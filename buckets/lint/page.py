"""The pages of documentation: one a code, as Markdown, with an example that has the finding and one that is mended."""

from importlib.resources import files


def page(code: str) -> str:
    """The page of a code, which there is."""
    return (files("buckets.lint") / "pages" / f"{code}.md").read_text(encoding="utf-8")
