"""Ranks of the rows of an experiment over its settings, with two tests of significance.

A block is a data set, a column and a seed: all rows have the same split, the same initial weights and the same clients
in every round. In each block the rows are ranked by accuracy. A row is compared with the best one twice, and the
p-values of each test are corrected by Holm's method:

- over the seeds: Wilcoxon's signed-rank test on the differences in all blocks. It asks whether the seeds explain the
  difference in these settings. The blocks of one column share their tuned settings, so they are not independent.
- over the settings: the paired t-test on the differences of the columns, each the mean over its seeds. It asks whether
  the difference is to be expected in other such settings. (With ten settings and 27 rows, no signed-rank test could be
  significant after the correction.) The columns share data and model, so it says nothing about other tasks.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from scipy.stats import rankdata, ttest_1samp, wilcoxon  # type: ignore[import-untyped]

from fedmim.reproduction.layout import Layout

RANKED_BY = "last_ten_accuracy"
ACCURACY_DIGITS = 4  # of an accuracy in %
RankBlock = tuple[str, str, int]  # data set, column, seed


@dataclass(frozen=True)
class RankedRow:
    """One row and its ranks; 1 is the best."""

    label: str
    ranks: Mapping[RankBlock, float]
    behind: float  # points behind the best row, on average over the blocks
    p_seeds: float | None  # Holm's p-value of the difference from the best row over the seeds; None for that row
    p_settings: float | None  # the same over the settings; None also if there is one setting only

    @property
    def mean(self) -> float:
        """The mean rank."""
        return fmean(self.ranks.values())

    def by_column(self) -> dict[tuple[str, str], float]:
        """The mean rank in each column."""
        places = dict.fromkeys((data, column) for data, column, _ in self.ranks)
        return {place: fmean(rank for block, rank in self.ranks.items() if block[:2] == place) for place in places}


def ranked_rows(layout: Layout) -> list[RankedRow]:
    """The rows by mean rank, the best first, over the largest part of the table without gaps.

    References are left out. A run that diverged has the accuracy 0.
    """
    values: dict[str, dict[RankBlock, float]] = {}
    for entry in layout.entries:
        if entry.results.reference:
            continue
        own, scores = values.setdefault(entry.cell.row.label, {}), entry.by_seed(RANKED_BY)
        for seed in entry.results.seeds:
            score = round(scores.get(seed, 0.0), ACCURACY_DIGITS)  # equal counts of correct samples are equal ranks
            own[entry.cell.data, entry.cell.column.label, seed] = score
    blocks = without_gaps({label: own.keys() for label, own in values.items()})
    whole = {label: own for label, own in values.items() if own.keys() >= blocks.keys()}
    ranks: dict[str, dict[RankBlock, float]] = {label: {} for label in whole}
    for block in blocks:
        for label, rank in zip(whole, rankdata([-own[block] for own in whole.values()]), strict=True):
            ranks[label][block] = float(rank)
    order = sorted(whole, key=lambda label: fmean(ranks[label].values()))
    if not order:
        return []
    best, *others = order
    gaps = {
        label: [round(whole[best][block] - whole[label][block], ACCURACY_DIGITS) for block in blocks]
        for label in others
    }
    seeds = dict(zip(others, holm([signed_rank_p(gaps[label]) for label in others]), strict=True))
    means = {label: column_means(gaps[label], blocks) for label in others}
    several = len({block[:2] for block in blocks}) > 1  # one setting says nothing about others
    settings = dict(zip(others, holm([paired_t_p(means[label]) for label in others]), strict=True)) if several else {}
    return [
        RankedRow(label, ranks[label], fmean(gaps.get(label, [0.0])), seeds.get(label), settings.get(label))
        for label in order
    ]


def without_gaps(has: Mapping[str, Iterable[RankBlock]]) -> dict[RankBlock, None]:
    """The blocks that make rows times blocks largest, if only the rows that have all of them are taken; in order.

    Tried are the blocks that two rows, or a row and itself, have in common. A part with one row is no comparison.
    """
    own = {label: dict.fromkeys(blocks) for label, blocks in has.items()}
    shared = ({block: None for block in a if block in b} for a in own.values() for b in own.values())

    def size(blocks: dict[RankBlock, None]) -> tuple[bool, int]:
        rows = sum(each.keys() >= blocks.keys() for each in own.values())
        return rows > 1, rows * len(blocks)

    return max(filter(None, shared), key=size, default={})


def signed_rank_p(differences: Sequence[float]) -> float:
    """The p-value of Wilcoxon's signed-rank test, two-sided; 1 if all differences are zero."""
    return float(wilcoxon(differences).pvalue) if any(differences) else 1.0


def paired_t_p(differences: Sequence[float]) -> float:
    """The p-value of the paired t-test, two-sided; 1 if all differences are equal, since their spread is unknown."""
    return float(ttest_1samp(differences, 0.0).pvalue) if len(set(differences)) > 1 else 1.0


def column_means(values: Sequence[float], blocks: Iterable[RankBlock]) -> list[float]:
    """The mean in each column of one value per block."""
    columns: dict[tuple[str, str], list[float]] = {}
    for value, (data, column, _) in zip(values, blocks, strict=True):
        columns.setdefault((data, column), []).append(value)
    return [round(fmean(own), ACCURACY_DIGITS) for own in columns.values()]


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction for several tests: the k-th smallest p-value times the number of those not smaller."""
    corrected, largest = [1.0] * len(p_values), 0.0
    for place, at in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[at]))
        corrected[at] = largest
    return corrected


def rank_text(p: float | None) -> str:
    """The p-value as text."""
    return "-" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def seeds_csv(layout: Layout) -> str:
    """One line per run: its place and its accuracy in %; empty if it diverged."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(("data", "column", "row", "seed", "accuracy"))
    for entry in layout.entries:
        cell, scores = entry.cell, entry.by_seed(RANKED_BY)
        for seed in sorted(entry.results.seeds):
            accuracy = f"{scores[seed]:.{ACCURACY_DIGITS}f}" if seed in scores else ""
            lines.writerow((cell.data, cell.column.label, cell.row.label, seed, accuracy))
    return text.getvalue()
