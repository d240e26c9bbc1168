"""Where compiled kernels are kept: in a folder that nobody else can write to, named after all that is compiled."""

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import buckets
from buckets import compiled, user_caches
from buckets.resources import DEMO_RULES
from buckets.timeline.tiers import floor_to

PACKAGE = Path(buckets.__file__).parent
NAME = f"kernels-{compiled.digest()}"


# The name


def file_of(module: str) -> Path:
    return PACKAGE / f"{module.removeprefix('buckets.').replace('.', '/')}.py"


def imported(path: Path) -> set[str]:
    """Modules of the package from which a module imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "buckets":
            found |= {f"buckets.{each.name}" for each in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("buckets."):
            modules = {f"{node.module}.{each.name}" for each in node.names}
            found |= {name for name in modules if file_of(name).exists()} or {node.module}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names if each.name.startswith("buckets.")}
    return found


@pytest.mark.slow
def test_the_name_of_the_folder_covers_every_module_that_is_compiled_or_whose_constants_are():
    covered = {PACKAGE / name for name in compiled.kernel_files()}
    kernels = {path for path in PACKAGE.rglob("*.py") if "buckets.compiled" in imported(path)}
    assert len(kernels) > 15
    used = {file_of(name) for each in kernels for name in imported(each)}
    assert kernels | used <= covered
    for path in covered:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        foreign = {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("buckets.")
            for alias in node.names
            if file_of(node.module) not in covered
        }
        constants = [node.value for node in tree.body if isinstance(node, ast.Assign) and path not in kernels]
        names = {each.id for value in constants for each in ast.walk(value) if isinstance(each, ast.Name)}
        assert not names & foreign, f"a constant of {path.name} comes from a module that the name does not cover"


# The location


@pytest.fixture
def package(tmp_path, monkeypatch) -> Path:
    """A package that the user may write, in which the module seems to be; the user's caches are beside it."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")  # not removed: what is set in its place has to go again
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setattr(compiled.tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(compiled.atexit, "register", lambda function: None)
    path = tmp_path / "package"
    path.mkdir(mode=0o755)
    monkeypatch.setattr(user_caches, "__file__", str(path / "user_caches.py"))
    return path


def mode(folder: Path) -> int:
    return folder.lstat().st_mode & 0o777


def test_they_are_kept_with_the_users_caches_for_all_clones(package, tmp_path):
    assert compiled.cache_folder() == tmp_path / "caches" / "buckets" / NAME
    assert mode(tmp_path / "caches" / "buckets") == mode(tmp_path / "caches" / "buckets" / NAME) == 0o700


def link_to_elsewhere(path: Path) -> None:
    path.parent.mkdir(exist_ok=True, parents=True)
    (path.parent / "elsewhere").mkdir()
    path.symlink_to("elsewhere")


def writable_by_others(path: Path) -> None:
    path.mkdir(exist_ok=True, parents=True)
    path.chmod(0o777)


@pytest.mark.parametrize(
    ("where", "plant"),
    [
        ("caches/buckets", link_to_elsewhere),
        ("caches/buckets", writable_by_others),
        (f"caches/buckets/{NAME}", link_to_elsewhere),
        (f"caches/buckets/{NAME}", writable_by_others),
        ("caches", writable_by_others),
    ],
)
def test_they_are_kept_in_the_package_where_others_may_write_to_the_caches(package, tmp_path, where, plant):
    plant(tmp_path / where)
    assert compiled.cache_folder() == package / "__pycache__" / NAME
    assert mode(package / "__pycache__" / NAME) == 0o700


@pytest.mark.parametrize("where", [".", "__pycache__", f"__pycache__/{NAME}"])
@pytest.mark.parametrize("plant", [link_to_elsewhere, writable_by_others])
def test_each_run_compiles_for_itself_where_others_may_write_to_the_package_too(package, tmp_path, where, plant):
    if where == "." and plant is link_to_elsewhere:
        package.rmdir()
    plant(package / where)
    writable_by_others(tmp_path / "caches")
    folder = compiled.cache_folder()
    assert folder.parent.parent == tmp_path
    assert folder.parent.name.startswith("buckets-")
    assert mode(folder.parent) == 0o700


def test_each_run_compiles_for_itself_where_all_folders_belong_to_somebody_else(package, tmp_path, monkeypatch):
    compiled.cache_folder()
    monkeypatch.setattr(compiled.os, "geteuid", lambda: 12345)
    assert compiled.cache_folder().parent.name.startswith("buckets-")


def test_each_run_compiles_for_itself_where_the_user_has_no_home(package, tmp_path, monkeypatch):
    def no_home() -> None:
        message = "Could not determine home directory."
        raise RuntimeError(message)

    writable_by_others(package)
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/counts-for-nothing")
    monkeypatch.setattr(compiled.Path, "home", no_home)
    assert compiled.cache_folder().parent.name.startswith("buckets-")


def test_they_are_kept_where_the_user_says(package, tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "mine"))
    assert compiled.cache_folder() == tmp_path / "mine" / NAME


KERNEL = """
from buckets.compiled import compiled
@compiled
def twice(number):
    return 2 * number
"""
USE = """
from buckets.kernel.score import twice
assert twice(4) == 8
print("hit" if twice.stats.cache_hits else "miss")
"""


def copy_compiler(package: Path) -> None:
    for name in ("compiled.py", "tuple_places.py", "user_caches.py", "whole_kernels.py"):
        shutil.copy(PACKAGE / name, package)
    (package / "__init__.py").touch()


def clone_at(folder: Path, kernel: str = KERNEL) -> Path:
    """A clone with one kernel."""
    (folder / "buckets" / "kernel").mkdir(parents=True)
    copy_compiler(folder / "buckets")
    (folder / "buckets" / "kernel" / "score.py").write_text(kernel)
    return folder


@pytest.mark.slow
def test_a_clone_uses_what_another_one_of_the_same_text_has_compiled(tmp_path):
    kept = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}

    def used(clone: Path) -> str:
        environment = kept | {"XDG_CACHE_HOME": str(tmp_path / "caches"), "PYTHONPATH": str(clone)}
        done = subprocess.run([sys.executable, "-c", USE], env=environment, cwd=clone, capture_output=True, check=True)
        return done.stdout.decode().strip()

    first, second = clone_at(tmp_path / "first"), clone_at(tmp_path / "second")
    os.utime(second / "buckets" / "kernel" / "score.py", (0, 0))
    assert [used(first), used(second), used(first)] == ["miss", "hit", "hit"]
    other = clone_at(tmp_path / "other", KERNEL.replace("2 * number", "number + number"))
    assert used(other) == "miss"
    assert len(list((tmp_path / "caches" / "buckets").iterdir())) == 2


def test_of_processes_that_start_at_once_one_compiles_and_the_others_load_it(tmp_path):
    clone = clone_at(tmp_path / "clone")
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "caches"), "PYTHONPATH": str(clone)}
    command = [sys.executable, "-c", USE]
    started = [subprocess.Popen(command, env=environment, cwd=clone, stdout=subprocess.PIPE, text=True) for _ in "abc"]
    assert sorted(each.communicate()[0].strip() for each in started) == ["hit", "hit", "miss"]


def test_an_environment_that_changes_later_changes_no_place(monkeypatch, tmp_path):
    """numba takes its settings from there again before it compiles."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert compiled.compiled(floor_to)(7, 5) == 5
    assert list(tmp_path.iterdir()) == []


SCRIPT = """
import os, subprocess, sys
from buckets.compiled import FOLDER
print(FOLDER, flush=True)
if len(sys.argv) > 1:
    subprocess.run([sys.executable, *sys.argv[1:]], check=True)
assert os.path.isdir(os.path.dirname(FOLDER))
"""


def test_a_run_that_compiles_for_itself_shares_it_with_the_processes_it_starts_and_leaves_nothing(tmp_path):
    (tmp_path / "buckets").mkdir()
    copy_compiler(tmp_path / "buckets")
    (tmp_path / "buckets").chmod(0o777)
    (tmp_path / "script.py").write_text(SCRIPT)
    kept = {name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    kept |= {"HOME": "/dev/null", "PYTHONPATH": str(tmp_path), "TMPDIR": str(tmp_path)}
    script = str(tmp_path / "script.py")
    done = subprocess.run([sys.executable, script, script], env=kept, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    first, second = (Path(line).parent for line in done.stdout.splitlines())
    assert first == second
    assert first.parent == tmp_path
    assert not first.exists()


def test_kernels_that_are_not_to_be_compiled_are_refused_in_one_line():
    command = [sys.executable, "-c", "from buckets.cli.commands import main; main()", "rules", "test", str(DEMO_RULES)]
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.fullmatch("error: NUMBA_DISABLE_JIT is set .*\n", done.stderr)
