"""The verdict, derived by hand from a few records."""

import pytest
from run_folders import fill, record

from fedmim.experiments.config import defaults
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import RunFolder
from fedmim.report.verdict import verdict
from fedmim.report.wording import group_sentence
from fedmim.results.grouping import group_runs
from fedmim.results.loading import load_results
from fedmim.results.number_formats import byte_size, clock, duration


@pytest.fixture
def cards(tmp_path):
    """The cards of runs given as label -> (method, records of each seed)."""

    def make(target, **methods):
        folders = []
        for label, (method, *seeds) in methods.items():
            for seed, records in enumerate(seeds):
                values = defaults("digits") | {"rounds": len(records), "seed": seed}
                folder = RunFolder.create(tmp_path / f"{label}-{seed}", Run.make(method, values, label))
                fill(folder, [record(t, **each) for t, each in enumerate(records, start=1)])
                folders.append(folder)
        (group,) = group_runs(load_results(folders), target)
        return {card.heading: card for card in verdict(group)}

    return make


def run(*accuracies, consistency=0.5, down=30):
    return [{"accuracy": accuracy, "consistency": consistency, "down": down} for accuracy in accuracies]


def test_each_figure_names_its_best_and_sets_fedavg_beside_it(cards):
    told = cards(
        0.5,
        Plain=("fedavg", run(0.2, 0.4, 0.6, 0.6, consistency=0.8)),
        Inert=("fedmim", run(0.4, 0.6, 0.8, 0.8, consistency=0.2, down=90)),
    )
    best = told["Best accuracy"]
    assert (best.label, best.figure, best.spread) == ("Inert", "80.00%", "")  # rounds 3 and 4
    assert best.notes == ("Mean of the last 2 evaluations, one seed", "Plain: 60.00% (20.00 points less)")
    rounds = told["Fewest rounds to 50%"]
    assert (rounds.label, rounds.figure, rounds.notes) == ("Inert", "2", ("Plain: 3 (1.5×)",))
    sent = told["Fewest bytes to 50%"]  # 3 rounds of 10 + 30 bytes against 2 of 10 + 90
    assert (sent.label, sent.figure, sent.notes) == ("Plain", "120 bytes", ("Inert: 200 bytes (1.67×)",))
    close = told["Lowest client drift"]
    assert (close.label, close.figure, close.notes) == ("Inert", "0.2", ("Plain: 0.8 (4×)",))


def test_a_lead_within_the_spread_of_the_seeds_is_told_as_such(cards):
    told = cards(
        None, A=("fedavg", run(0.5), run(0.7)), B=("fedmim", run(0.6), run(0.8)), C=("fedcm", run(0.1), run(0.1))
    )
    best = told["Best accuracy"]
    assert (best.label, best.figure, best.spread) == ("B", "70.00%", "± 14.14")
    assert "Within one standard deviation: A" in best.notes


def test_a_target_that_is_missed_is_told_for_all_and_for_single_seeds(cards):
    told = cards(0.9, A=("fedavg", run(0.5), run(0.95)), B=("fedmim", run(0.91), run(0.92)))
    assert told["Fewest rounds to 90%"].notes == ("A: not reached with 1 of 2 seeds, best 72.50%",)  # (0.5 + 0.95) / 2


def test_a_method_that_was_not_evaluated_yet_is_left_out(cards):
    told = cards(0.5, A=("fedavg", run(None)), B=("fedmim", run(None)), C=("scaffold", run(0.6)))
    assert told["Best accuracy"].label == "C"
    assert told["Best accuracy"].notes == ("Mean of the last evaluation, one seed",)


def test_a_target_that_no_method_reached_has_one_card_with_how_far_each_came(cards):
    told = cards(0.99, A=("fedavg", run(0.5, 0.4)), B=("fedmim", run(0.6, 0.7)), C=("feddyn", run(0.1, 0.2)))
    assert not [heading for heading in told if "Fewest" in heading]
    closest = told["Closest to the target of 99%"]
    assert (closest.figure, closest.spread, closest.label) == ("70.00%", "", "B")
    assert closest.notes == ("Highest test accuracy; no method has reached the target", "A: 50.00%", "C: 20.00%")


def test_a_target_that_only_some_seeds_reached_is_told_as_such(cards):
    closest = cards(0.9, A=("fedavg", run(0.5), run(0.95)), B=("fedmim", run(0.6), run(0.7)))
    closest = closest["Closest to the target of 90%"]
    assert (closest.figure, closest.spread, closest.label) == ("72.50%", "± 31.82", "A")
    head = "Highest test accuracy; no method has reached the target with every seed (reached with 1 of 2 seeds)"
    assert closest.notes == (head, "B: 65.00%")


def test_a_target_is_not_mentioned_before_the_first_evaluation(cards):
    assert cards(0.9, A=("fedavg", run(None, consistency=0.0))) == {}


def test_client_drift_with_one_client_per_round_has_no_card(cards):
    told = cards(0.5, A=("fedavg", run(0.6, consistency=0.0)), B=("fedmim", run(0.7, consistency=0.0)))
    assert "Lowest client drift" not in told


def test_fedmim_is_named_where_it_is_not_the_best_and_ties_are_told_once(cards):
    told = cards(0.5, A=("fedavg", run(0.6)), B=("scaffold", run(0.9)), C=("fedmim", run(0.7)), D=("fedmim", run(0.8)))
    assert told["Best accuracy"].notes[1:] == ("A: 60.00% (30.00 points less)", "D: 80.00% (10.00 points less)")
    assert told["Fewest rounds to 50%"].notes == ("Tied: B, C and D",)


def test_a_sentence_says_what_was_run(tmp_path):
    values = defaults("digits") | {"rounds": 2, "lr": 0.3}
    folder = RunFolder.create(tmp_path / "a", Run.make("fedmim", values))
    fill(folder, [record(1, 0.5)])
    (group,) = group_runs(load_results([folder]))
    assert group_sentence(group) == (
        "FedMIM on digits, split dirichlet:0.1: 100 clients, 10 per round, 2 rounds, model mlp, 5 epochs per round, "
        "batch 5, learning rate 0.3, 1 seed. 0 of 1 runs have ended so far."
    )


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1 kB"), (38_480_000, "38.5 MB"), (1.341e12, "1.341 TB")],
)
def test_bytes_are_told_in_the_unit_that_suits(count, text):
    assert byte_size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.6, "1 min"), (190, "3 min 10 s"), (7500, "2 h 5 min"), (180_000, "2 d 2 h")]
)
def test_times_are_told_in_the_unit_that_suits(seconds, text):
    assert duration(seconds) == text


def test_a_clock_is_short():
    assert [clock(seconds) for seconds in (0.4, 190, 7500)] == ["0:00", "3:10", "2:05:00"]


def test_a_run_that_stopped_early_is_told_as_such_and_not_as_one_in_progress(tmp_path):
    values = defaults("digits") | {"rounds": 9, "until": 0.5}
    folder = RunFolder.create(tmp_path / "run", Run.make("fedavg", values, "Plain"))
    fill(folder, [record(t, **each) for t, each in enumerate(run(0.2, 0.6), start=1)])
    (group,) = group_runs(load_results([folder]), 0.5)
    assert verdict(group)[0].notes[0].endswith("one seed, reached 0.5 in round 2")
    assert "at most 9 rounds" in group_sentence(group)
    assert "so far" not in group_sentence(group)


def test_a_reference_is_never_the_best_and_is_told_below_the_accuracy(cards):
    told = cards(
        0.5,
        Pool=("centralised", run(0.9, 0.9, consistency=None, down=0)),
        Plain=("fedavg", run(0.4, 0.6)),
        Alone=("local", run(0.1, 0.2, consistency=None, down=0)),
    )
    assert {card.label for card in told.values()} == {"Plain"}
    assert told["Best accuracy"].notes[1:] == ("Pool, for reference: 90.00%", "Alone, for reference: 20.00%")


def test_references_alone_have_no_cards(cards):
    assert cards(0.5, Pool=("centralised", run(0.9, 0.9, consistency=None)), Alone=("local", run(0.1))) == {}
