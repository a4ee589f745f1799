"""Links out of docs/ work on the site: the files that they name become pages or files below repository/.

On GitHub the same links open the files themselves. A Markdown file and a source file become a page, a folder a page
with its files, and a picture stays a picture.
"""

from __future__ import annotations

import re
from os.path import normpath, relpath
from pathlib import Path
from typing import Any

LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)#\s]+)(?=[#)])")
PICTURES = (".png", ".svg")
LANGUAGES = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".sbatch": "sh"}
SHOWN_FILES = 20  # of a folder; of a larger one only the names
IN_THE_NAVIGATION = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "benchmarks/RESULTS.md")


def on_files(files: Any, config: Any) -> Any:
    """Add what pages link to, and what the added pages link to."""
    from mkdocs.structure.files import File

    root = Path(config.config_file_path).parent
    todo = list(IN_THE_NAVIGATION)
    for page in files.documentation_pages():
        todo += outside(page.content_string, f"docs/{page.src_uri}", root)
    while todo:
        uri = site_path(path := todo.pop())
        if files.get_file_from_path(uri):
            continue
        if path.endswith(PICTURES):
            files.append(File.generated(config, uri, abs_src_path=str(root / path)))
            continue
        text = as_page(root / path, path)
        files.append(File.generated(config, uri, content=text))
        todo += outside(text, path, root)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Change the links to what `on_files` added, and links to notebooks to their pages; set the order of a search."""
    root, uri = Path(config.config_file_path).parent, page.file.src_uri
    original = uri.removeprefix("repository/") if uri.startswith("repository/") else f"docs/{uri}"

    if uri.startswith("repository/") and original not in IN_THE_NAVIGATION:
        page.meta["search"] = {"exclude": True}  # tables of runs and sources are among the results for every word
    elif uri.startswith("results/"):
        page.meta["search"] = {"boost": 0.25}
    elif uri == "how-do-i.md" or uri.startswith(("guide/", "tutorials/")):
        page.meta["search"] = {"boost": 4}

    def changed(link: re.Match[str]) -> str:
        path = normpath(Path(original).parent / link[1])
        return relpath(site_path(path), Path(uri).parent) if (root / path).exists() else link[0]

    return LINK.sub(changed, markdown)


def outside(text: str, page: str, root: Path) -> list[str]:
    """The files and folders outside docs/ that a page links to, as paths in the repository."""
    paths = [normpath(Path(page).parent / link) for link in LINK.findall(text)]
    return [each for each in paths if not each.startswith((".", "docs/")) and (root / each).exists()]


def site_path(path: str) -> str:
    """Where a file or folder of the repository is on the site."""
    if path.startswith("docs/"):
        return re.sub(r"\.ipynb$", ".md", path.removeprefix("docs/"))
    return f"repository/{path}" if path.endswith((".md", *PICTURES)) else f"repository/{path}.md"


def as_page(file: Path, path: str) -> str:
    """The text of the page of a file or a folder."""
    if file.suffix == ".md":
        return file.read_text(encoding="utf-8")
    if file.is_file():
        return f"# {path}\n\n{block(file)}"
    inside = sorted(each for each in file.rglob("*") if each.is_file() and "__pycache__" not in each.parts)
    if len(inside) > SHOWN_FILES:
        return f"# {path}\n\nA folder of the repository:\n\n" + "\n".join(f"- `{each.name}`" for each in file.iterdir())
    return f"# {path}\n\n" + "\n\n".join(f"## {each.relative_to(file).as_posix()}\n\n{block(each)}" for each in inside)


def block(file: Path) -> str:
    """A file as a code block."""
    return f"`````{LANGUAGES.get(file.suffix, 'text')}\n{file.read_text(encoding='utf-8').strip()}\n`````"
