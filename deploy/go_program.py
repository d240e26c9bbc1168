"""Programs that are Go modules, servers for tests and tools, each built once a machine by Go's own command."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

BUILT_WITHIN_S = 900.0


def place(version: str, package: str) -> Path:
    """Return where the program of a package is kept once it was built."""
    return Path(tempfile.gettempdir()) / f"{package.rpartition('/')[2]}-{version}-{os.getuid()}"


def built(module: str, version: str, package: str) -> Path | None:
    """Build the program of a module's package, unless it was built before.

    Returns:
        Its path; None where there is no Go, or the module cannot be fetched.
    """
    program = place(version, package)
    go = shutil.which("go")
    with Path(f"{program}.lock").open("w") as lock:
        # Of several processes of the tests one builds it.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if program.exists() or go is None:
            return program if program.exists() else None
        with tempfile.TemporaryDirectory(prefix="go-") as folder:
            # Some modules' own go.mod replaces others, so they cannot be installed by name alone.
            for command in (
                ("mod", "init", "tests"),
                ("mod", "edit", "-require", f"{module}@{version}"),
                ("build", "-mod=mod", "-o", f"{program}.new", f"{module}/{package}"),
            ):
                try:
                    subprocess.run([go, *command], cwd=folder, check=True, capture_output=True, timeout=BUILT_WITHIN_S)
                except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
                    return None
        Path(f"{program}.new").replace(program)
    return program
