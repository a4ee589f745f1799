"""The colours and line styles of methods, the same on the terminal, in all figures and on the page.

Each method has one colour. Variants of a method, also with wrappers (feddyn+leap), share its hue and differ in shade
and dashes. COLOURS are distinguishable with any kind of colour blindness, on light and dark backgrounds. There are not
enough such colours for all methods: the remaining methods share those of OTHERS. References are grey and never solid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fedmim.algorithms import METHODS, REFERENCES
from fedmim.experiments.methods import split_name

# Based on the palette of Okabe and Ito, adjusted under simulated colour blindness. FedMIM has the strongest colour.
COLOURS = {
    "fedavg": "#717682",
    "fedadam": "#e69f00",
    "scaffold": "#0c9d59",
    "fedcm": "#0d72bf",
    "feddyn": "#c88db6",
    "fedsam": "#56b4e9",
    "fedmim": "#d55e00",
    "fedprox": "#5a48f0",
    "fedavgm": "#9c2458",
}
OTHERS = ("#8a5a2b", "#b0a000", "#00a8a8", "#e05080", "#7a9a3a", "#a070e0")  # all other methods
REFERENCE = "#999999"  # the colour of references
REFERENCE_DASHES = {"centralised": "--", "local": ":"}
DASHES = ("-", "--", "-.", ":")  # names in matplotlib
DASH_NAMES = dict(zip(DASHES, ("solid", "dash", "dashdot", "dot"), strict=True))  # names in plotly
SHADES = (0.0, -0.15, 0.4)  # towards black, towards white


@dataclass(frozen=True)
class Style:
    """The style of one line of a comparison."""

    colour: str  # "#rrggbb"
    dash: str  # one of DASHES
    strong: bool  # drawn wider and above the others

    @property
    def dash_name(self) -> str:
        """The name of the dash in plotly."""
        return DASH_NAMES[self.dash]


def colour_of(method: str) -> str:
    """The colour of a method."""
    base = split_name(method)[0]
    if base in REFERENCES:
        return REFERENCE
    if base in COLOURS:
        return COLOURS[base]
    others = [name for name in METHODS if name not in COLOURS]
    number = others.index(base) if base in others else sum(map(ord, base.rpartition(":")[2]))
    return OTHERS[number % len(OTHERS)]


def styles(methods: Iterable[str]) -> list[Style]:
    """A style for each line. The first line of a colour is pure and solid; twelve lines of a colour all differ."""
    seen: dict[str, int] = {}
    lines = []
    for method in methods:
        colour, dashes = colour_of(method), dashes_of(method)
        alike = f"{colour} {dashes}"
        number = seen[alike] = seen.get(alike, -1) + 1
        dash, lighter = dashes[number % len(dashes)], SHADES[number % len(SHADES)]
        lines.append(Style(shade(colour, lighter), dash, method == "fedmim"))
    return lines


def dashes_of(method: str) -> tuple[str, ...]:
    """The dashes of the variants of a method; a reference has one of its own."""
    base = split_name(method)[0]
    return (REFERENCE_DASHES[base],) if base in REFERENCE_DASHES else DASHES


def label_styles(methods: Mapping[str, str]) -> dict[str, Style]:
    """A style for each label. `methods` has the method of each label."""
    return dict(zip(methods, styles(methods.values()), strict=True))


def shade(colour: str, amount: float) -> str:
    """A colour mixed with white (amount above 0) or black (below)."""
    end, part = (255, amount) if amount > 0 else (0, -amount)
    channels = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(channel + (end - channel) * part):02x}" for channel in channels)
