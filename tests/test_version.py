"""The version is written in src/fedmim/__init__.py; everything else that names it agrees."""

import re
from pathlib import Path

import fedmim
from fedmim.cli import main

ROOT = Path(__file__).parents[1]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
CITATION = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
RELEASES = re.findall(r"^## \[([\d.]+)\] - (\d{4}-\d\d-\d\d)$", CHANGELOG, re.MULTILINE)


def field(name):
    (value,) = re.findall(rf"^{name}: (\S+)$", CITATION, re.MULTILINE)
    return value


def test_the_command_line_prints_the_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"fedmim {fedmim.__version__}\n"


def test_the_newest_release_of_the_changelog_is_this_version_and_the_citation_has_both_it_and_its_date():
    assert RELEASES[0] == (fedmim.__version__, field("date-released"))
    assert field("version") == fedmim.__version__


def test_the_changelog_has_unreleased_changes_first_and_then_the_newest_release():
    assert re.findall(r"^## (.*)$", CHANGELOG, re.MULTILINE) == [
        "[Unreleased]",
        *(f"[{version}] - {date}" for version, date in RELEASES),
    ]
    numbers = [tuple(map(int, version.split("."))) for version, _ in RELEASES]
    assert numbers == sorted(set(numbers), reverse=True)


def test_the_changelog_groups_changes_by_kind():
    kinds = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert set(re.findall(r"^### (.*)$", CHANGELOG, re.MULTILINE)) <= kinds
