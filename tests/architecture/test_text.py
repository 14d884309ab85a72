"""Rules about the project's text."""

import re

from tests.architecture.project import PACKAGES, ROOT, files, python_files

MOST_LINES = 450
MACHINE_PATH = re.compile(r"(?<![\w.$}])/(?:work|opt|root)/")
LINK = re.compile(r"\[[^\]]*\]\((?!https?:|mailto:|#)([^)\s#]+)(?:#[^)]*)?\)")
CODE_BLOCK = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def test_nothing_names_a_path_of_one_machine() -> None:
    found = []
    for name in files():
        try:
            text = (ROOT / name).read_text("utf-8")
        except UnicodeDecodeError:
            continue  # a picture or an archive
        found += [f"{name}:{number}" for number, line in enumerate(text.splitlines(), 1) if MACHINE_PATH.search(line)]

    assert found == []


def test_every_link_to_a_file_leads_somewhere() -> None:
    pages = [name for name in files() if name.suffix == ".md"]
    broken = [
        f"{page}: {target}"
        for page in pages
        for target in LINK.findall(CODE_BLOCK.sub("", (ROOT / page).read_text("utf-8")))
        if not (ROOT / page.parent / target).exists()
    ]

    assert pages
    assert broken == []


def test_modules_are_small_enough_to_be_read_at_once() -> None:
    lines = {str(name): len((ROOT / name).read_text("utf-8").splitlines()) for name in python_files(*PACKAGES)}

    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}


def test_the_glossary_speaks_of_names_that_exist() -> None:
    rows = [line.split("|") for line in (ROOT / "docs/glossary.md").read_text("utf-8").splitlines() if line.startswith("|")]
    named = {name for row in rows for name in re.findall(r"`([\w.]+)`", row[3])}
    source = "\n".join((ROOT / name).read_text("utf-8") for name in python_files(*PACKAGES))

    assert named
    assert {name for name in named if not re.search(rf"\b{re.escape(name)}\b", source)} == set()
