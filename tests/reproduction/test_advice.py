"""Advice: distances and gaps by hand, only methods that the clients can run, and evidence from the committed tables."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from fedmim.errors import UserError
from fedmim.reproduction.advice import MethodCosts, Wanted, advise, concentration, costs_of, setting_distance
from fedmim.reproduction.evidence import EVIDENCE, Evidence, collected, load_evidence

RESULTS = Path(__file__).parents[2] / "results"
ONE = Evidence("family", "cpu", "cifar10", "x", "dirichlet:0.1", 0.1, 20, "fedavg", 0.1, "", 50.0, 1.0, 3)
WANTED = Wanted(0.1, "dirichlet:0.1", 20)


def results(setting, **accuracies):
    own = {"split": setting[1], "participation": setting[2], "steps": setting[3], "data": setting[0]}
    return [replace(ONE, method=method, accuracy=accuracy, **own) for method, accuracy in accuracies.items()]


NEAR, FAR = ("a", "dirichlet:0.1", 0.1, 20), ("b", "iid", 0.1, 20)
MIDDLE, OFF = ("c", "dirichlet:0.1", 0.05, 20), ("d", "dirichlet:0.1", 0.4, 20)
ALL = [
    *results(NEAR, fedavg=40.0, fedmim=50.0, scaffold=55.0, fedsam=52.0),
    *results(MIDDLE, fedavg=44.0, fedmim=50.0, scaffold=46.0),
    *results(OFF, fedavg=45.0, fedmim=48.0, scaffold=46.0),
    *results(FAR, fedavg=99.0, fedmim=10.0, scaffold=10.0),
]


def test_distances_by_hand():
    assert setting_distance(WANTED, NEAR) == 0
    assert setting_distance(WANTED, MIDDLE) == 1  # a factor of two in participation
    assert setting_distance(WANTED, OFF) == 2
    assert setting_distance(replace(WANTED, steps=80), NEAR) == 1  # two factors of two, each half
    assert setting_distance(WANTED, ("e", "dirichlet:1", 0.1, 20)) == pytest.approx(2)  # a factor of ten
    assert concentration("iid") == concentration("dirichlet:1000")


def test_clients_per_round_count_and_the_fraction_only_for_clients_with_state():
    larger = replace(WANTED, clients=1000, participation=0.02)  # 20 per round
    assert setting_distance(replace(larger, stateless=True), ("e", "dirichlet:0.1", 0.2, 20)) == 0  # 20 of 100
    assert setting_distance(replace(larger, stateless=True), NEAR) == 1  # 10 of 100: a factor of two
    # 5 of 100: factors of 4 in the number and of 2.5 in the fraction
    assert setting_distance(larger, MIDDLE) == pytest.approx((2 + math.log2(2.5)) / 2)


def test_the_nearest_settings_decide_and_gaps_are_their_mean_weighted_by_distance():
    found = advise(WANTED, ALL)
    assert [gap for gap, _ in found.settings] == [0, 1, 2]  # not the IID one
    assert [each.method for each in found.settings[0][1]] == ["scaffold", "fedsam", "fedmim", "fedavg"]
    one, half, third = (6 / 11, 3 / 11, 2 / 11)  # 1, 1/2 and 1/3, divided by their sum
    assert found.gaps == pytest.approx(
        {"fedmim": 5 * one, "scaffold": 4 * half + 2 * third, "fedavg": 15 * one + 6 * half + 3 * third}
    )  # FedSAM is in one of three only
    assert found.method == "scaffold"
    assert found.of("scaffold").accuracy == 55.0


def test_only_methods_in_all_settings_are_compared():
    """Else one that was only run where all methods are alike would look good."""
    found = advise(WANTED, [*ALL, *results(MIDDLE, fedacg=50.0), *results(OFF, fedacg=48.0)])
    assert found.settings[1][1][0].accuracy == 50.0
    assert "fedacg" not in found.gaps


def test_a_setting_with_one_method_compares_nothing():
    alone = results(MIDDLE, fedavg=44.0)
    others = [each for each in ALL if each.setting != MIDDLE]
    assert advise(WANTED, [*others, *alone]) == advise(WANTED, others)
    assert advise(WANTED, alone).gaps == {"fedavg": 0}  # better than no advice


def test_methods_less_than_two_standard_errors_behind_are_level():
    """Per setting and method, a deviation of 1 over 4 seeds is a variance of 1/4. The weights are 2/3 and 1/3, so the
    variance of the mean difference is (4/9 + 1/9) / 2, and twice the error is 1.054 points."""
    four = [replace(each, seeds=4) for each in two_settings(1.05)]
    assert advise(WANTED, four).level == ("fedmim", "fedavg")
    four = [replace(each, seeds=4) for each in two_settings(1.06)]
    assert advise(WANTED, four).level == ("fedmim",)
    assert advise(WANTED, [replace(each, seeds=40) for each in two_settings(1.05)]).level == ("fedmim",)
    assert advise(WANTED, [replace(each, deviation=0.0, seeds=4) for each in two_settings(0.1)]).level == ("fedmim",)
    one = [replace(each, seeds=1, deviation=0.0) for each in two_settings(2.1)]
    assert advise(WANTED, one).level == ("fedmim", "fedavg")  # one seed says nothing about its spread


def two_settings(gap):
    return results(NEAR, fedmim=50.0, fedavg=50.0 - gap) + results(MIDDLE, fedmim=50.0, fedavg=50.0 - gap)


def test_methods_that_are_equal_are_in_the_order_of_their_names():
    equal = dict.fromkeys(("feddyn", "fedmim", "fedavg", "fedcm", "scaffold", "fedsam"), 50.0)
    assert list(advise(WANTED, results(NEAR, **equal)).gaps) == sorted(equal)


def test_of_level_methods_the_one_with_the_lowest_costs_is_advised():
    methods = {"feddyn": 50.0, "scaffold": 49.9, "fedsam": 49.8, "fedmim": 49.7, "fedacg": 49.5, "fedavg": 45.0}
    found = advise(WANTED, results(NEAR, **methods))
    assert found.level == ("feddyn", "scaffold", "fedsam", "fedmim", "fedacg")
    assert found.method == "fedacg"  # no state, unlike the first two; one gradient; two vectors instead of three
    without = {name: value for name, value in methods.items() if name != "fedacg"}
    assert advise(WANTED, results(NEAR, **without)).method == "fedmim"
    assert advise(WANTED, results(NEAR, feddyn=50.0, scaffold=49.9, fedavg=40.0)).method == "feddyn"


def test_methods_that_the_clients_cannot_run_are_left_out():
    assert {each.method for each in advise(replace(WANTED, stateless=True), ALL).settings[0][1]} == {
        "fedavg",
        "fedmim",
        "fedsam",
    }
    assert "fedsam" not in {each.method for each in advise(replace(WANTED, gradients=1), ALL).settings[0][1]}
    assert {each.method for each in advise(replace(WANTED, vectors=2), ALL).settings[0][1]} == {"fedavg", "fedsam"}
    with pytest.raises(UserError, match="vectors: no method needs so few"):
        advise(replace(WANTED, vectors=1), ALL)


def test_costs_are_those_of_the_methods():
    assert costs_of("fedavg") == MethodCosts(1, 2, 0)
    assert costs_of("scaffold") == MethodCosts(1, 3, 1)
    assert costs_of("fedmim") == MethodCosts(1, 3, 0)
    assert costs_of("feddyn+leap+sharp") == MethodCosts(2, 2, 1)


@pytest.mark.parametrize("split", ["dirichlet:x", "dirichlet:0", "natural", "iid:3", ""])
def test_other_splits_are_rejected(split):
    with pytest.raises(UserError, match="split: must be iid or dirichlet:NUMBER"):
        concentration(split)


@pytest.mark.skipif(not RESULTS.is_dir(), reason="not in the source distribution")
def test_the_evidence_is_that_of_the_committed_tables():
    """If not: python -m fedmim.reproduction.evidence results."""
    assert EVIDENCE.read_text(encoding="utf-8") == collected(RESULTS)


def test_the_evidence_can_be_read_and_has_the_paper_and_its_rivals():
    known = load_evidence()
    assert {"fedavg", "fedmim", "feddyn", "scaffold"} <= {each.method for each in known}
    assert all(0 < each.accuracy < 100 and 0 < each.participation <= 1 and each.steps for each in known)
    assert len({(each.setting, each.method) for each in known}) == len(known)
    # Clients of every kind can run it, so there is advice for all.
    assert {each.setting for each in known} == {each.setting for each in known if each.method == "fedavg"}
