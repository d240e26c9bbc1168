"""The bill of materials of a release: each package and jar that a job may load, in CycloneDX.

Packages are those of the lock file that `buckets` depends on, jars those of `jars.lock` with their checksums, scripts
those of the console. What an image has beside them comes from Debian, and is not in here.
"""

import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata
from typing import Any

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from buckets.java.jars import BROKER_JARS, S3_JARS, SPARK_JARS, Jar
from buckets.resources import resource
from buckets.version import own_version
from deploy.requirements import runtime_requirements

_PINNED = re.compile(r"^([\w.-]+)==([^\s;\\]+)", re.MULTILINE)
_SCRIPTS = {
    "htmx.org": ("console/static/htmx.min.js", r'version="([\d.]+)"'),
    "uplot": ("console/static/uPlot.iife.min.js", r"\(v([\d.]+)\)"),
}
"""Scripts of the console: their names on npm, where they lie, and what says their version."""


def bill_of_materials() -> str:
    """Return the bill of this version, as JSON of CycloneDX 1.6."""
    root = _component(PackageURL("pypi", None, "buckets", own_version()), type=ComponentType.APPLICATION)
    parts = [*_packages(), *map(_jar, SPARK_JARS + S3_JARS + BROKER_JARS), *_scripts()]
    bill = Bom(metadata=BomMetaData(component=root), components=parts)
    bill.register_dependency(root, parts)
    return f"{JsonV1Dot6(bill).output_as_string(indent=2)}\n"


def _component(purl: PackageURL, **more: Any) -> Component:
    """Return what a package URL names, a library that is needed unless something else is said."""
    said = {"type": ComponentType.LIBRARY, "scope": ComponentScope.REQUIRED} | more
    return Component(
        name=purl.name, group=purl.namespace, version=purl.version, purl=purl, bom_ref=purl.to_string(), **said
    )


def _packages() -> Iterator[Component]:
    """Yield the locked packages, with the licence where a package says it as an expression."""
    licences = LicenseFactory()
    for name, version in _PINNED.findall(runtime_requirements()):
        expression = _licence(name)
        said = [licences.make_from_string(expression)] if expression else []
        yield _component(PackageURL("pypi", None, name, version), licenses=said)


def _licence(package: str) -> str | None:
    """Return the licence of an installed package; None where it is only told in prose."""
    try:
        return metadata(package).json.get("license_expression")  # type: ignore[return-value]
    except PackageNotFoundError:  # it is for other systems
        return None


def _jar(jar: Jar) -> Component:
    """Return a jar; those for S3 and of the local broker are not loaded by every job."""
    scope = ComponentScope.REQUIRED if jar in SPARK_JARS else ComponentScope.OPTIONAL
    checksum = HashType(alg=HashAlgorithm.SHA_256, content=jar.sha256)
    return _component(PackageURL("maven", jar.organisation, jar.artifact, jar.revision), scope=scope, hashes=[checksum])


def _scripts() -> Iterator[Component]:
    for name, (place, pattern) in _SCRIPTS.items():
        said = re.search(pattern, resource(place).read_text(encoding="utf-8"))
        yield _component(PackageURL("npm", None, name, said[1] if said else None))
