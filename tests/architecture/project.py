"""The files of this project, for rules about its text."""

import os
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("policies", "watchdog", "api", "agent/src/spot_watchdog_agent")


@cache
def files() -> tuple[Path, ...]:
    """Return every file of the project, relative to its root: tracked ones and new ones, not what git ignores."""
    if (ROOT / ".git").exists():
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
        names: Iterator[Path] = (Path(name) for name in listed if name)
    else:
        names = _walk()
    return tuple(sorted(name for name in set(names) if (ROOT / name).is_file()))


def _walk() -> Iterator[Path]:
    """Yield the files of an unpacked source archive, which has no git: no caches, no environment."""
    for folder, subfolders, names in os.walk(ROOT):
        subfolders[:] = [name for name in subfolders if not (name.startswith(".") or name.endswith(".egg-info") or name == "__pycache__")]
        yield from (Path(folder, name).relative_to(ROOT) for name in names)


def python_files(*folders: str) -> tuple[Path, ...]:
    """Return the Python files under `folders`."""
    return tuple(name for name in files() if name.suffix == ".py" and any(name.is_relative_to(folder) for folder in folders))
