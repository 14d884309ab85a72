"""Import names: PyPI has an unrelated `watchdog` (file events) that would be installed into the same folder as ours."""

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.project import PACKAGES, ROOT, python_files

OURS = ("policies", "watchdog", "api")
NAMES_OF_THE_OTHER = {"observers", "events", "tricks", "utils", "version"}
NAMES_THAT_SAY_NOTHING = {"helpers", "common", "manager", "handler", "misc"}


def owners(package: str) -> set[str]:
    """Return the distributions that bring an import package, editable installs included (those list no files)."""
    claimed = set(importlib.metadata.packages_distributions().get(package, ()))
    for distribution in importlib.metadata.distributions():
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
        if origin.get("dir_info", {}).get("editable"):
            links = [Path(str(file.locate())) for file in distribution.files or () if file.suffix == ".pth"]
            folders = {Path(line) for link in links for line in link.read_text("utf-8").splitlines() if line}
            claimed |= {distribution.name} if any((folder / package / "__init__.py").is_file() for folder in folders) else set()
    return claimed


@pytest.mark.parametrize("package", OURS)
def test_each_import_name_has_one_owner(package: str) -> None:
    assert owners(package) == {"spot-watchdog"}


def test_the_other_watchdog_is_not_installed() -> None:
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.distribution("watchdog")


def test_importing_watchdog_does_nothing() -> None:
    script = "import sys; before = set(sys.modules); import watchdog; print(sorted(set(sys.modules) - before))"

    loaded = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    assert loaded == "['watchdog']"
    assert (ROOT / "watchdog/__init__.py").read_text("utf-8") == ""


def test_no_module_has_a_name_of_the_other_watchdog_or_one_that_says_nothing() -> None:
    forbidden = NAMES_OF_THE_OTHER | NAMES_THAT_SAY_NOTHING
    found = [str(name) for name in python_files(*PACKAGES) if forbidden & {name.stem, *name.parts}]

    assert found == []
