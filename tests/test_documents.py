"""Every code block of the documentation is run, every link has a target, every image a text.

The documentation is README.md, the pages below docs/, and the text of the tutorials.

A name, flag, method, file or heading that does not exist fails here. There is one test for each page. Its blocks run in
order, in one empty folder that is the working directory:

- ```python: as it stands, alone: each block starts with an empty namespace. It may read files that earlier blocks of
  the page wrote. The blocks of docs/deploy.md are excerpts of a Flower app, which tests/flower runs; here they are
  compiled, and every name that they import must exist.
- ```sh, and indented blocks: every `fedmim` command is run for real, in this process, made smaller by `smaller` and by
  small CIFAR files in the official layout. The word DIR stands for the folder with these files; examples/ is the
  repository's. Any other command must be in NOT_RUN, with the reason.
- ```toml: must be valid TOML.
- notebooks: the blocks of their Markdown cells, and the files that their code cells write. The code cells are run by
  tests/test_tutorials.py.
- ```text (output, formulas), ```bibtex, and ```diff (tests/flower/test_adoption.py applies it): not run.

A python or toml block that begins with a comment that is only a file name (`# settings.toml`) is also written to that
file, for the commands below it. A block of any other kind fails.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
import tomllib
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest
import small_cifar

from fedmim.cli import main
from fedmim.report.watch import PageServer
from fedmim.theory import demonstrations

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))
LINKED = [
    *PAGES,
    *TUTORIALS,  # the links are in their JSON as they are in Markdown
    *(ROOT / name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "benchmarks/RESULTS.md")),
]
EXCERPTS = ROOT / "docs" / "deploy.md"
FLOWER = "tests/flower runs a deployment with and without TLS"
CLUSTER = "needs several machines"
NOT_RUN = {
    "pip": "needs the network",
    "git": "needs the network",
    "make": "installs first; the target must be in the Makefile",
    "python": "scripts and benchmarks take too long; the script or module must exist",
    "pytest": "the tests themselves",
    "export": "sets a variable for commands that are not run",
    "ray": CLUSTER,
    "sbatch": f"{CLUSTER}; tests/test_cluster_files.py runs the script",
    "flwr": FLOWER,
    "flower-superlink": FLOWER,
    "flower-supernode": FLOWER,
    "openssl": FLOWER,
    "ssh-keygen": FLOWER,
}
pytestmark = pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="not in the source distribution")


@dataclass(frozen=True)
class Block:
    """A code block of a page."""

    page: Path
    line: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}, line {self.line}"


def short(page):
    """The path of a page, for the name of its test."""
    return page.relative_to(ROOT).as_posix()


def blocks(page):
    """The fenced and indented blocks of a page, in order."""
    found, fence, previous = [], None, ""
    for number, line in enumerate(source(page).splitlines(), start=1):
        if fence is None and (match := re.fullmatch(r" {0,3}```(\S*)", line)):
            fence = match[1]
            found.append([number, fence, []])
        elif fence is not None and line.strip() == "```":
            fence = None
        elif fence is not None:
            found[-1][2].append(line)
        elif line.startswith("    ") and not previous.strip():
            found.append([number, "sh", [line]])
        elif line.startswith("    ") and found and found[-1][0] + len(found[-1][2]) == number:
            found[-1][2].append(line)
        previous = line
    assert fence is None, f"{page.name}: a fence is not closed"
    return [Block(page, number, kind, "\n".join(lines) + "\n") for number, kind, lines in found]


def source(page):
    """The text of a page; of a notebook, its Markdown cells, and as blocks the files that it writes."""
    text = page.read_text(encoding="utf-8")
    if page.suffix != ".ipynb":
        return text
    parts = []
    for cell in json.loads(text)["cells"]:
        own = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(own)
        elif own.startswith("%%writefile "):
            parts.append(f"```python\n{own.replace('%%writefile', '#', 1)}\n```")
    return "\n\n".join(parts)


def run(block, monkeypatch):
    """Run a block as its kind is run, in the working directory."""
    if name := re.match(r"# ([\w-]+\.(?:py|toml))\n", block.text):
        Path(name[1]).write_text(block.text)
    if block.kind == "python":
        run_python(block)
    elif block.kind == "sh":
        for line in re.sub(r"\\\n", " ", block.text).splitlines():
            run_command(shlex.split(line, comments=True), monkeypatch)
    elif block.kind == "toml":
        tomllib.loads(block.text)
    else:
        known = ("text", "bibtex", "diff")
        assert block.kind in known, f"{block.kind!r} is no kind of block; see the docstring of this file"


def run_python(block):
    code = compile(block.text, str(block), "exec", dont_inherit=True)
    if block.page != EXCERPTS:
        exec(code, {"__name__": "__main__"})
        return
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom):
            module = import_module(node.module)
            assert all(hasattr(module, each.name) for each in node.names), ast.unparse(node)
        elif isinstance(node, ast.Import):
            for each in node.names:
                import_module(each.name)


def run_command(words, monkeypatch):
    while words and re.match(r"[A-Z_]+=", words[0]):  # a variable for this command
        words = words[1:]
    if not words:
        return
    program, *rest = words
    if program == "fedmim":
        with monkeypatch.context() as patch:
            arguments = smaller([str(Path("data").resolve()) if word == "DIR" else word for word in rest], patch)
            assert main(arguments) == 0, shlex.join(words)
        return
    assert program in NOT_RUN, f"{shlex.join(words)}: say in NOT_RUN why it is not run"
    if program == "make":
        assert re.search(rf"^{rest[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), shlex.join(words)
    if program == "python":
        module = rest[1].replace(".", "/") if rest[0] == "-m" else None
        files = [f"{module}.py", f"{module}/__main__.py"] if module else rest[:1]
        assert any((ROOT / file).is_file() for file in files), shlex.join(words)


def smaller(words, patch):
    """The words of a `fedmim` command, changed to take a second: two rounds, two trials, no waiting for a browser.

    `reproduce` checks everything that it is asked for, then writes the tables of what is finished, which is nothing.
    With --dry-run it runs as it stands. No Ray cluster is started; tests of the engine do that.
    """
    words = without(without(words, "--ray"), "--engine", "ray")
    match words:
        case ["run" | "compare", *_] | ["theory", "--measure", *_]:
            return [*words, "--rounds", "2"]
        case ["tune", *_]:
            return [*words, "--rounds", "2", "--trials", "2"]
        case ["reproduce", *_] if "--dry-run" not in words:
            return [*words, "--tables-only"]
        case ["theory", "--show", *_] if "--figures" not in words:
            patch.setattr(demonstrations, "DEMONSTRATIONS", {})  # they take minutes; tests/theory runs them
        case ["watch", *_]:
            patch.setattr(PageServer, "serve_forever", lambda server: None)
    return words


def without(words, flag, value=None):
    """The words without this flag and its value; with `value`, only if it has this one."""
    at = words.index(flag) if flag in words else len(words)
    return words if value not in (None, *words[at + 1 : at + 2]) else [*words[:at], *words[at + 2 :]]


def run_page(page, folder, monkeypatch):
    """Run all blocks of a page in the folder; the error of a block names it."""
    small_cifar.write(folder / "data", monkeypatch, train=300, test=50)
    monkeypatch.setenv("FEDMIM_DATA", str(folder / "data"))
    monkeypatch.chdir(folder)
    (folder / "examples").symlink_to(ROOT / "examples")
    for block in blocks(page):
        try:
            run(block, monkeypatch)
        except (Exception, SystemExit) as error:
            raise AssertionError(f"{block}: {type(error).__name__}: {error}\n{block.text}") from error


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what Flower imports
@pytest.mark.parametrize("page", [page for page in [*PAGES, *TUTORIALS] if blocks(page)], ids=short)
def test_every_block_of_the_page_runs(page, tmp_path, monkeypatch):
    run_page(page, tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("```sh\nfedmim run --round 1\n```", "SystemExit: 2"),
        ("```sh\nfedmim compare --methods fedavg,nothing\n```", "AssertionError: fedmim compare"),
        ("```sh\nfedmim reproduce table1 --data cifar10 \\\n    --fast\n```", "SystemExit: 2"),
        ("```sh\nfedmim reproduce rates --columns nothing\n```", "AssertionError: fedmim reproduce"),
        ("```sh\nfedmim data fetch nothing\n```", "AssertionError: fedmim data"),
        ("```sh\nrm -r runs\n```", "rm -r runs: say in NOT_RUN"),
        ("Text:\n\n    fedmim\n    fedmim nothing", "AssertionError: fedmim nothing"),
        ("    make nothing", "AssertionError: make nothing"),
        ("    python -m benchmarks.nothing", "AssertionError: python -m benchmarks.nothing"),
        ("```python\nimport fedmim\nfedmim.Nothing\n```", "AttributeError"),
        ("```python\nx = 1\n```\n\n```python\nx\n```", "line 5: NameError"),
        ("```toml\nx\n```", "TOMLDecodeError"),
        ("```\noutput\n```", "'' is no kind of block"),
        ("```text\noutput", "a fence is not closed"),
    ],
)
def test_a_block_that_does_not_run_is_found(text, problem, tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(AssertionError, match=re.escape(problem)):
        run_page(page, tmp_path, monkeypatch)


def test_the_deployment_page_imports_what_there_is(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    monkeypatch.setitem(globals(), "EXCERPTS", page)
    page.write_text("```python\nfrom fedmim import Nothing\n```")
    with pytest.raises(AssertionError, match="Nothing"):
        run_page(page, tmp_path, monkeypatch)


@pytest.mark.parametrize("page", LINKED, ids=short)
def test_every_link_has_a_target(page):
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", page.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", LINKED, ids=short)
def test_every_image_has_a_text_for_those_who_cannot_see_it(page):
    text = page.read_text(encoding="utf-8")
    assert all(alt.strip() for alt in re.findall(r"!\[([^\]]*)\]\(", text))
    assert all(re.search(r'\balt="[^"]+"', tag) for tag in re.findall(r"<img\b[^>]*>", text))


def anchors(page):
    """The names that a link can use for a place on a page: its headings, as GitHub spells them, and <a id="...">."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<a id="([^"]+)">', text))


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150
