"""Entries of the navigation with a * stand for the pages and notebooks that match and are not listed by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Expand the navigation."""
    config.nav = expand(config.nav, Path(config.docs_dir), listed(config.nav))
    return config


def listed(nav: Any) -> set[str]:
    """The pages that are listed by name."""
    if isinstance(nav, str):
        return {nav}
    return set().union(*(listed(each) for each in (nav.values() if isinstance(nav, dict) else nav)))


def expand(nav: Any, docs: Path, known: set[str]) -> list[Any]:
    """The entries, in order; a section without pages is left out."""
    found: list[Any] = []
    for entry in nav:
        if isinstance(entry, str) and "*" in entry:
            files = (each.relative_to(docs) for each in docs.glob(entry) if each.suffix in (".md", ".ipynb"))
            found += sorted({each.with_suffix(".md").as_posix() for each in files} - known)
        elif isinstance(entry, dict) and isinstance((section := next(iter(entry.items())))[1], list):
            inside = expand(section[1], docs, known)
            found += [{section[0]: inside}] if inside else []
        else:
            found.append(entry)
    return found
