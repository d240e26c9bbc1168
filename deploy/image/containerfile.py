"""The Containerfile as instructions: of its language what it uses, and no more."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from buckets.errors import BucketsError

CONTAINERFILE = Path(__file__).with_name("Containerfile")
_CACHE = re.compile(r"--mount=type=cache,target=(\S+)\s+")
_SETTINGS = ("LABEL", "EXPOSE", "WORKDIR", "USER", "ENTRYPOINT", "CMD")


@dataclass(frozen=True)
class Step:
    """What is done in the image, in the order of the file: a command that is run, or files that are copied.

    Attributes:
        keyword: RUN or COPY.
        text: what stands after it.
        variables: those that are set by then.
        caches: folders that are kept from one build to the next, and are not in the image.
    """

    keyword: str
    text: str
    variables: dict[str, str]
    caches: tuple[str, ...] = ()


@dataclass
class Containerfile:
    """What a Containerfile says."""

    base: str = ""
    steps: list[Step] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    """The words of LABEL, EXPOSE, WORKDIR, USER, ENTRYPOINT and CMD, each of which stands there once."""

    def words(self, keyword: str) -> Sequence[str]:
        """Return a setting that is a list in JSON."""
        words: list[str] = json.loads(self.settings[keyword])
        return words


def read_containerfile(text: str) -> Containerfile:
    """Return what a Containerfile says.

    Raises:
        BucketsError: it has an instruction that is not known here.
    """
    said = Containerfile()
    joined = re.sub(r"\\\n\s*", "", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    for line in filter(None, joined.splitlines()):
        keyword, _, rest = line.partition(" ")
        if keyword == "FROM":
            said.base = rest
        elif keyword == "ENV":
            name, _, value = rest.partition("=")
            said.variables[name] = value
        elif keyword in ("RUN", "COPY"):
            said.steps.append(Step(keyword, _CACHE.sub("", rest), dict(said.variables), tuple(_CACHE.findall(rest))))
        elif keyword in _SETTINGS and keyword not in said.settings:
            said.settings[keyword] = rest
        else:
            message = f"Containerfile: cannot carry out {line!r}; see {Path(__file__).name} for what can be"
            raise BucketsError(message)
    return said
