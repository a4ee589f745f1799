"""The documentation site: every public name is in its reference, notebooks are pages, nothing comes from elsewhere."""

import re
import runpy
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name

import pytest

from fedmim.algorithms import METHODS, WRAPPERS

ROOT = Path(__file__).parents[1]
HOOKS = ROOT / "docs" / ".mkdocs"
pytestmark = pytest.mark.skipif(not HOOKS.is_dir(), reason="not in the source distribution")
PACKAGES = ["fedmim", *(f"fedmim.{name}" for name in ("algorithms", "data", "flower", "models", "theory"))]


REFERENCE = sorted((ROOT / "docs" / "reference").glob("*.md"))


def documented():
    return [
        name
        for page in REFERENCE
        for name in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    ]


def resolved(name):
    package, _, last = name.rpartition(".")
    return getattr(import_module(package), last) if package in PACKAGES else resolve_name(name)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what Flower imports
@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_in_the_reference_under_its_own_name(package):
    module = import_module(package)
    shown = {name.rpartition(".")[2]: resolved(name) for name in documented()}
    assert set(module.__all__) <= set(shown)
    assert all(shown[name] is getattr(module, name) for name in module.__all__)


@pytest.mark.parametrize("page", REFERENCE, ids=lambda page: page.stem)
def test_every_name_is_in_an_example_of_its_page(page):
    text = page.read_text(encoding="utf-8")
    names = {name.rpartition(".")[2] for name in re.findall(r"^::: (\S+)$", text, re.MULTILINE)}
    examples = "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    assert names - {"__version__", "DatasetDescriptor", "Scalar"} <= set(re.findall(r"\w+", examples))


def test_a_name_is_documented_once():
    assert len(documented()) == len(set(documented()))


def test_the_navigation_lists_what_there_is(tmp_path):
    hook = runpy.run_path(str(HOOKS / "nav.py"))
    for name in (
        "home.md",
        "tutorials/02.ipynb",
        "tutorials/01.ipynb",
        "guide/index.md",
        "guide/other.md",
        "guide/a.png",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    nav = ["home.md", {"Tutorials": ["tutorials/*"]}, {"Guide": ["guide/index.md", "guide/*"]}, {"None": ["none/*"]}]
    assert hook["expand"](nav, tmp_path, hook["listed"](nav)) == [
        "home.md",
        {"Tutorials": ["tutorials/01.md", "tutorials/02.md"]},
        {"Guide": ["guide/index.md", "guide/other.md"]},
    ]


def test_a_notebook_becomes_a_page_with_its_outputs():
    markdown = runpy.run_path(str(HOOKS / "notebooks.py"))["markdown"]
    outputs = [
        {"output_type": "stream", "text": ["\x1b[1mbold\x1b[0m\n", "plain\n"]},
        {"output_type": "display_data", "data": {"image/png": "QUJD\n", "text/plain": "<Figure>"}},
        {"output_type": "execute_result", "data": {"text/html": ["<style>p {}</style><p>\n\n</p>"], "text/plain": "x"}},
    ]
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "Text"]},
        {"cell_type": "code", "source": ["1 + 1"], "outputs": outputs, "metadata": {"alt": '"ABC"'}},
        {"cell_type": "code", "source": [], "outputs": []},
    ]
    assert markdown({"cells": cells}) == (
        "# Title\nText\n\n`````python\n1 + 1\n`````\n\n`````text\nbold\nplain\n`````\n\n"
        '<p><img alt="&quot;ABC&quot;" src="data:image/png;base64,QUJD"></p>\n\n'
        '<div class="output"><p>\n</p></div>\n'
    )


def test_the_link_to_a_notebook_is_below_its_title():
    page = runpy.run_path(str(HOOKS / "notebooks.py"))["with_download"]("# Title\n\nText\n", "01.ipynb")
    assert page == '# Title\n\n<p><a href="01.ipynb" download>Download this notebook</a></p>\n\nText\n'


def test_a_number_and_its_spread_stay_in_one_line_of_a_table():
    change = runpy.run_path(str(HOOKS / "spread.py"))["on_page_content"]
    changed = change("<p>1 ± 2</p><td><strong>1 ± 2</strong></td>", None, None, None)
    assert changed == "<p>1 ± 2</p><td><strong>1\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}2</strong></td>"


def test_what_a_page_loads_from_elsewhere_is_found():
    foreign = runpy.run_path(str(HOOKS / "offline.py"))["foreign"]
    bad = [
        '<script src="https://example.org/x.js">',
        "<link href='//example.org/x.css'>",
        "<img src=http://example.org/x>",
    ]
    good = ['<a href="https://example.org">', '<img src="images/x.png">', '<script src="../x.js">']
    assert foreign("".join([*good, *bad])) == bad


def test_links_out_of_the_documentation_go_to_pages_of_the_site(tmp_path):
    hook = runpy.run_path(str(HOOKS / "repository.py"))
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "x.py").write_text("x = 1")
    text = "[a](../examples/x.py) [b](../README.md#there) [c](other.md) [d](../missing.py) [e](https://example.org)"
    (tmp_path / "README.md").touch()
    assert hook["outside"](text, "docs/page.md", tmp_path) == ["examples/x.py", "README.md"]
    assert hook["site_path"]("examples/x.py") == "repository/examples/x.py.md"
    assert hook["site_path"]("docs/tutorials/01.ipynb") == "tutorials/01.md"
    assert hook["as_page"](tmp_path / "examples", "examples") == "# examples\n\n## x.py\n\n`````python\nx = 1\n`````"


def test_the_reference_shows_every_hyper_parameter_of_a_method():
    text = "".join((ROOT / "docs" / "reference" / name).read_text() for name in ("methods.md", "wrappers.md"))
    for kind in (*METHODS.values(), *WRAPPERS.values()):
        block = re.search(rf"^::: fedmim\.{kind.__name__}\n((?:    .*\n)+)", text, re.MULTILINE)
        own = [field.name for field in fields(kind) if field.name != "inner"]
        assert f"members: [{', '.join(own)}]\n" in block[1] or (not own and "members: false\n" in block[1]), kind
