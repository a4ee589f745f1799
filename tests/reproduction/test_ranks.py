"""Ranks of methods and the tests of their differences, by hand."""

from math import atan, pi
from types import SimpleNamespace

import pytest

from fedmim.reproduction.rank_figure import rank_figure
from fedmim.reproduction.ranks import holm, paired_t_p, ranked_rows, seeds_csv, signed_rank_p, without_gaps


def layout(values, references=()):
    """A layout with these accuracies by row, column and seed; None: the run diverged."""
    entries = []
    for row, columns in values.items():
        for column, seeds in columns.items():
            cell = SimpleNamespace(data="d", column=SimpleNamespace(label=column), row=SimpleNamespace(label=row))
            scores = {seed: value for seed, value in seeds.items() if value is not None}
            entries.append(
                SimpleNamespace(
                    cell=cell,
                    results=SimpleNamespace(seeds=tuple(seeds), reference=row in references),
                    by_seed=lambda metric, scores=scores: scores,
                )
            )
    return SimpleNamespace(entries=entries)


TWO = {
    "a": {"x": {0: 50.0, 1: 52.0}, "y": {0: 60.0, 1: 61.0}},
    "b": {"x": {0: 51.0, 1: 50.0}, "y": {0: 59.0, 1: 60.0}},
    "c": {"x": {0: 40.0, 1: 50.0}, "y": {0: None, 1: 59.0}},
    "partly": {"x": {0: 99.0, 1: 99.0}},
}


def test_ranks_by_hand():
    first, second, third = ranked_rows(layout(TWO))  # without the row that has one column only
    assert [row.label for row in (first, second, third)] == ["a", "b", "c"]
    assert first.ranks == {("d", "x", 0): 2, ("d", "x", 1): 1, ("d", "y", 0): 1, ("d", "y", 1): 1}
    assert third.ranks[("d", "x", 1)] == 2.5  # b and c are equal there
    assert (first.mean, first.behind, first.p_seeds, first.p_settings) == (1.25, 0.0, None, None)
    assert second.behind == pytest.approx((-1 + 2 + 1 + 1) / 4)
    assert third.behind == pytest.approx((10 + 2 + 60 + 2) / 4)  # a diverged run has 0 %
    assert first.by_column() == {("d", "x"): 1.5, ("d", "y"): 1.0}


def test_the_largest_part_without_gaps_by_hand():
    has = {"a": "wxyz", "b": "xyz", "c": "xyw", "d": "xy", "e": "v", "f": ""}
    assert "".join(without_gaps(has)) == "xy"  # a to d in two blocks: 8; a and b in three: 6
    assert "".join(without_gaps(has | {"g": "xyz"})) == "xy"  # five rows in two: 10; a, b and g in three: 9
    assert "".join(without_gaps({"a": "zyxw", "b": "yzx", "c": "yx"})) == "zyx"  # 6 beats 3 * 2 only by order
    assert "".join(without_gaps({"a": "vwxyz", "b": "z", "c": "z"})) == "z"  # one row alone is no comparison
    assert "".join(without_gaps({"a": "xy", "b": "z"})) == "xy"
    assert not without_gaps({"a": "", "b": ""})
    assert not without_gaps({})


def test_rows_with_a_few_blocks_do_not_hide_the_others():
    rows = TWO | {"wide": {column: {0: 1.0, 1: 1.0} for column in "xyz"}}
    assert [row.label for row in ranked_rows(layout(rows))] == ["a", "b", "c", "wide"]  # z is not ranked


def test_references_are_not_ranked_and_are_among_the_seeds():
    best = {"pool": {column: dict.fromkeys(seeds, 99.0) for column, seeds in TWO["a"].items()}}
    found = layout(best | TWO, references=("pool",))
    assert ranked_rows(found) == ranked_rows(layout(TWO))
    assert "d,x,pool,0,99.0000" in seeds_csv(found)


def test_differences_that_are_equal_but_for_rounding_are_ties():
    rows = {
        "a": {"x": {0: 50.12, 1: 40.12, 2: 30.3, 3: 60.7, 4: 20.0}},
        "b": {"x": {0: 50.02, 1: 40.02, 2: 30.4, 3: 60.5, 4: 19.7}},
    }
    assert ranked_rows(layout(rows))[1].p_seeds == signed_rank_p([0.1, 0.1, -0.1, 0.2, 0.3])
    raw = [50.12 - 50.02, 40.12 - 40.02, 30.3 - 30.4, 0.2, 0.3]
    assert signed_rank_p([0.1, 0.1, -0.1, 0.2, 0.3]) != signed_rank_p(raw)


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])  # 3 * 0.01; 2 * 0.03; max(0.06, 1 * 0.04)
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_the_signed_rank_test_of_differences_of_one_sign():
    assert signed_rank_p([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx(2 / 2**5)  # all signs equal: 2 of 32 outcomes
    assert signed_rank_p([0.0, 0.0]) == 1.0


def two_sided(t):
    """The p-value of t with one degree of freedom, where the t-distribution is Cauchy's."""
    return 1 - 2 / pi * atan(t)


def test_the_paired_t_test_of_two_differences():
    assert paired_t_p([1.0, 3.0]) == pytest.approx(two_sided(2.0))  # mean 2, deviation sqrt(2), error 1
    assert paired_t_p([-1.0, 1.0]) == pytest.approx(1.0)
    assert paired_t_p([2.0, 2.0]) == 1.0  # no spread to compare with


def test_the_test_over_the_settings_has_one_difference_per_column():
    _, second, third = ranked_rows(layout(TWO))
    # Second: 0.5 and 1, mean 0.75, error 0.25. Third: 6 and 31, mean 18.5, error 12.5, the larger of the two p.
    assert second.p_settings == pytest.approx(2 * two_sided(3.0))
    assert third.p_settings == pytest.approx(max(2 * two_sided(3.0), two_sided(1.48)))
    one = {row: {"x": columns["x"]} for row, columns in TWO.items()}
    assert [row.p_settings for row in ranked_rows(layout(one))] == [None] * 4  # one setting says nothing about others


def test_more_seeds_of_the_same_settings_do_not_make_a_difference_between_settings_significant():
    """A method that is best in two columns and worst in one: certain over many seeds, not over three settings."""
    gaps = {"x": 4.0, "y": 2.0, "z": -1.0}
    rows = {
        "a": {column: {seed: 50.0 + seed for seed in range(40)} for column in gaps},
        "b": {column: {seed: 50.0 + seed - gap for seed in range(40)} for column, gap in gaps.items()},
    }
    second = ranked_rows(layout(rows))[1]
    assert second.p_seeds < 0.001
    assert second.p_settings > 0.3


def test_no_rows_without_results():
    assert ranked_rows(layout({})) == []


def test_one_line_per_run():
    lines = seeds_csv(layout(TWO)).splitlines()
    assert lines[:3] == ["data,column,row,seed,accuracy", "d,x,a,0,50.0000", "d,x,a,1,52.0000"]
    assert "d,y,c,0," in lines


def test_the_figure_has_every_row_and_marks_those_that_are_not_told_from_the_best():
    rows = ranked_rows(layout(TWO))
    (axes,) = rank_figure(rows, {"a": "fedavg", "b": "fedmim", "c": "scaffold"}).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b", "c"]
    means = [line for line in axes.lines if line.get_marker() == "o"]
    assert [line.get_xdata()[0] for line in means] == [row.mean for row in rows]
    assert {line.get_markerfacecolor() for line in means} == {"white"}  # four blocks cannot be significant
