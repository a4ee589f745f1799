"""The paper's tables from runs whose figures are known by hand: Markdown, CSV and LaTeX; and their figures."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest
from tests.helpers.tuned import in_all_columns

from fedmim.reproduction.experiment import PaperExperiment, narrowed
from fedmim.reproduction.figures import against_rounds, against_rows, against_setting
from fedmim.reproduction.latex_table import latex_table
from fedmim.reproduction.layout import Layout, TableEntry, legend_text
from fedmim.reproduction.plan import cells
from fedmim.reproduction.scale import Scale
from fedmim.reproduction.tables import behind, comma_separated, markdown
from fedmim.results.method_results import MethodResults, RunResult

SCALE = Scale.read("cpu")


def entry(cell, records, targets):
    """A finished cell with these records of its runs."""
    runs = [RunResult(run, Path(), each) for run, each in zip(cell.runs, records, strict=True)]
    return TableEntry(cell, MethodResults(tuple(runs)), tuple(targets))


def records(accuracies, consistency=0.5, up=1_000_000, down=3_000_000):
    """Rounds with these accuracies, None where nothing was evaluated."""
    return [
        {
            "round": number,
            "test_accuracy": accuracy,
            "test_loss": None,
            "train_loss": 1.0,
            "consistency": consistency,
            "bytes_up": up,
            "bytes_down": down,
            "refused": 0,
            "seconds": 2.0,
        }
        for number, accuracy in enumerate(accuracies, 1)
    ]


# Two seeds a place. FedAvg: last evaluations 0.50 and 0.54; FedMIM: 0.60 and 0.64, and never 0.65.
FEDAVG = (records([0.9, None, *[0.5] * 10]), records([0.1, None, *[0.54] * 10]))
FEDMIM = (records([0.2, 0.3, *[0.6] * 10], 0.1), records([0.2, 0.3, *[0.64] * 10], 0.3))


@pytest.fixture
def layout():
    table1 = PaperExperiment.read("table1")
    experiment = narrowed(table1, data=("cifar10",), splits=("iid", "dirichlet:0.1"), methods="fedavg,fedmim")
    best = {("cifar10", "FedAvg"): None, ("cifar10", "FedMIM"): {"lr": 1.0}}
    made = []
    for cell in cells(experiment, SCALE, {}, (0, 1), in_all_columns(experiment, best)):
        if cell.column.label == "IID." and cell.runs:
            known = {"FedAvg": FEDAVG, "FedMIM": FEDMIM}[cell.row.label]
            made.append(entry(cell, known, [0.4, 0.65]))
    return Layout(experiment, made)


def test_figures_are_means_over_seeds_of_the_last_evaluations(layout):
    fedavg = layout.found["cifar10", "IID.", "FedAvg", "common"]
    assert fedavg.main == pytest.approx((52.0, 2.8284271))
    assert fedavg.by_seed("best_accuracy") == pytest.approx({0: 90, 1: 54})
    # 40 % at round 1 and round 3, at 4 MB a round; 65 % at round 1 and never.
    at_40, at_65 = map(fedavg.results.at_target, fedavg.targets)
    assert at_40.over_seeds("rounds_to_target") == pytest.approx((2.0, 1.4142136))
    assert at_40.over_seeds("bytes_to_target") == pytest.approx((8e6, 5.6568542e6))
    assert (at_65.over_seeds("rounds_to_target"), at_65.missing("rounds_to_target")) == (None, 1)
    fedmim = layout.found["cifar10", "IID.", "FedMIM", "common"]
    assert fedmim.results.over_seeds("consistency")[0] == pytest.approx(0.2)
    assert fedmim.results.at_target(0.65).missing("rounds_to_target") == 2


def test_markdown_has_measured_and_papers_numbers_side_by_side_and_the_best_in_bold(layout):
    lines = markdown(layout, SCALE).splitlines()
    table = [line for line in lines[lines.index("## CIFAR-10") :] if line.startswith("|")]
    assert table[0] == "| Method | IID.<br>shared learning rate | IID.<br>tuned | IID.<br>paper |"
    assert table[2] == "| FedAvg | 52.00 ± 2.83 | - | 82.16 |"
    assert table[3] == "| FedMIM | **62.00 ± 2.83** | 62.00 ± 2.83 | **86.39** |"
    detail = (
        "| FedAvg | shared learning rate | lr 0.1 | 52.00 ± 2.83 | 10.00 (10.00, 10.00) | 72.00 ± 25.46 "
        "| 0.5 | 2 | 1 of 2 never | 8 | 1 of 2 never |"
    )
    assert detail in lines
    own = (
        "| FedMIM | tuned | lr 1.0; alpha 0.6, 0.3; beta 0.9, 0.1; beta_unit step | 62.00 ± 2.83 | - | 62.00 ± 2.83 "
        "| 0.2 | 3 | never |"
    )
    assert any(line.startswith(own) for line in lines)
    text = "\n".join(lines)
    assert "2 seeds, ± standard deviation" in text
    assert "mean over the last 4 evaluations (at most ten, and none before the last third of the rounds)" in text
    assert all(note in text for note in (*SCALE.shrunk, *SCALE.assumed))


def test_how_far_a_row_is_behind_is_told_within_the_seeds_that_it_shares_with_the_best(layout):
    fedavg, fedmim, _ = layout.entries  # 50 and 54 %, 60 and 64 %
    assert behind(fedavg, [fedavg, fedmim]) == "10.00 (10.00, 10.00)"
    assert behind(fedmim, [fedavg, fedmim]) == "-"
    crossed = entry(fedmim.cell, (records([0.64] * 10), records([0.5] * 10)), [])  # ahead by 14 and behind by 4
    assert behind(fedavg, [fedavg, crossed]) == "5.00 (14.00, -4.00)"
    second = entry(replace(fedavg.cell, runs=fedavg.cell.runs[1:]), FEDAVG[1:], [])  # 54 % with seed 1 alone
    assert behind(second, [second, fedmim]) == "10.00"
    first = entry(replace(fedmim.cell, runs=fedmim.cell.runs[:1]), FEDMIM[:1], [])
    assert behind(second, [second, first]) == "-"


def test_the_papers_number_stands_also_where_no_run_is_finished(layout):
    (mine,) = [entry for entry in layout.entries if (entry.cell.row.label, entry.cell.fair) == ("FedAvg", "common")]
    (other,) = [entry for entry in layout.entries if entry.cell.fair == "own"]
    (far,) = [column for column in layout.experiment.columns if column.label == "DIR.1"]
    elsewhere = replace(other, cell=replace(other.cell, column=far))
    lines = markdown(Layout(layout.experiment, [mine, elsewhere]), SCALE).splitlines()
    assert "| FedAvg | 52.00 ± 2.83 | - | 82.16 | - | - | 75.92 |" in lines
    assert "| FedMIM | - | - | **86.39** | - | 62.00 ± 2.83 | **80.82** |" in lines


def test_csv_has_a_line_for_each_place_with_its_settings(layout):
    rows = list(csv.DictReader(io.StringIO(comma_separated(layout))))
    assert [(row["row"], row["fair"], row["lr"]) for row in rows] == [
        ("FedAvg", "common", "0.1"),
        ("FedMIM", "common", "0.1"),
        ("FedMIM", "own", "1.0"),
    ]
    assert float(rows[0]["last_ten_accuracy"]) == pytest.approx(0.52)
    assert rows[0]["last_ten_evaluations"] == "4"  # of 12 rounds
    assert float(rows[0]["paper"]) == pytest.approx(0.8216)
    assert (rows[0]["rounds_to_0.4"], rows[0]["rounds_to_0.65"], rows[0]["bytes_to_0.4"]) == ("2", "", "8e+06")


def test_latex_is_a_booktabs_table_whose_lines_all_have_its_columns(layout):
    text = latex_table(layout, SCALE)
    begin = text.index(r"\begin{tabular}{lrrr}")
    body = text[begin : text.index(r"\end{tabular}")].splitlines()
    assert body[1] == r"\toprule"
    assert body[-1] == r"\bottomrule"
    rows = [line for line in body if line.endswith(r"\\") and "multicolumn" not in line]
    assert {line.count("&") for line in rows} == {3}
    assert (
        r"FedMIM & \textbf{62.00}{\scriptsize$\,\pm\,$2.83} & 62.00{\scriptsize$\,\pm\,$2.83} & \textbf{86.39} \\"
        in rows
    )
    assert r"\multicolumn{4}{c}{CIFAR-10} \\" in body
    assert text.count("{") == text.count("}")
    plain = text.split("\n", 1)[1]  # past the comment
    assert all(plain[place - 1] == "\\" for place, letter in enumerate(plain) if letter in "%_")


def test_table_three_survives_its_bars_and_greek_letters():
    experiment = PaperExperiment.read("table3")
    made = [entry(cell, FEDMIM, []) for cell in cells(experiment, SCALE, {}, (0, 1), {}) if cell.runs]
    layout = Layout(experiment, made)
    lines = [line for line in markdown(layout, SCALE).splitlines() if line.startswith("|")]
    assert lines[0].startswith(r"| α₁, α₂ \| β₁, β₂ |")
    assert len([line for line in lines if "84.98" in line]) == 1
    assert {line.replace(r"\|", "").count("|") for line in lines[:11]} == {4}
    assert r"$\alpha_1$, $\alpha_2$ $|$ $\beta_1$, $\beta_2$ & shared & paper" in latex_table(layout, SCALE)


def test_in_the_table_of_consistency_the_smallest_is_best_and_the_paper_has_no_column():
    consistency = PaperExperiment.read("consistency")
    experiment = narrowed(consistency, data=("cifar10",), methods="fedavg,fedmim", fair=("common",))
    known = {"FedAvg": FEDAVG, "FedMIM": FEDMIM}
    made = [entry(cell, known[cell.row.label], []) for cell in cells(experiment, SCALE, {}, (0, 1), {})]
    text = markdown(Layout(experiment, made), SCALE)
    lines = text.splitlines()
    assert "| Method | client drift |" in lines  # one number in each place, which needs no name
    assert "| FedAvg | 0.5 ± 0 |" in lines
    assert "| FedMIM | **0.2 ± 0.141** |" in lines
    assert "Paper:" not in text
    (axes,) = against_rounds(experiment, made).axes
    assert axes.get_yscale() == "log"


def head_of(experiment, overrides=(), best=(), fair=()):
    """The line with the settings in the table of a whole or narrowed experiment."""
    made = cells(
        narrowed(experiment, fair=fair), SCALE, dict(overrides), (0, 1), in_all_columns(experiment, dict(best))
    )
    layout = Layout(experiment, [entry(cell, FEDMIM, []) for cell in made if cell.runs])
    (line,) = [line for line in markdown(layout, SCALE).splitlines() if "Settings: " in line]
    return line.partition("Settings: ")[2].rstrip(".").split(", ")


def test_the_head_of_a_table_has_the_settings_of_the_runs_in_it():
    table2 = narrowed(PaperExperiment.read("table2"), data=("cifar10",), methods="fedavg,fedmim")
    whole = head_of(table2)
    at = whole.index("rounds 300 (E = 1)")
    assert whole[at : at + 3] == ["rounds 300 (E = 1)", "100 (E = 5)", "50 (E = 10)"]
    assert not [each for each in whole if each.startswith("local_epochs")]  # what the columns are about
    part = head_of(narrowed(table2, columns=("E = 5",)))
    assert {"rounds 100", "eval_every 2", "lr 0.1", "server_lr none"} <= set(part)
    changed = head_of(table2, {"rounds": 3, "clients": 20})
    assert {"rounds 3", "clients 20", "model cnn"} <= set(changed)
    best = {("cifar10", "FedAvg"): {"lr": 0.3}, ("cifar10", "FedMIM"): {"lr": 1.0}}
    tuned = head_of(table2, best=best, fair=("own",))
    assert not [each for each in tuned if each.startswith("lr ")]  # each method has its own


def test_a_table_has_the_settings_of_its_own_experiment_and_no_names_for_a_single_number():
    table3 = PaperExperiment.read("table3")
    made = [entry(cell, FEDMIM, []) for cell in cells(table3, SCALE, {}, (0, 1), {}) if cell.runs]
    (settings,) = [line for line in markdown(Layout(table3, made), SCALE).splitlines() if "Settings: " in line]
    assert "rounds 150" in settings  # the scale has 300
    assert "split dirichlet:0.6" in settings
    decay = PaperExperiment.read("decay")
    layout = Layout(decay, [entry(cell, FEDMIM, [0.4]) for cell in cells(decay, SCALE, {}, (0, 1), {})])
    lines = markdown(layout, SCALE).splitlines()
    assert "| Variant | lr 0.1 | lr 1 |" in lines
    detail = "| Variant | settings | last 4 | behind | best | client drift | rounds to 40% | MB to 40% |"
    assert lines[lines.index(detail) + 1] == "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    assert lines[lines.index(detail) + 2].startswith("| FedCM, inside | lr 0.1; alpha 0.1 | 62.00 ± 2.83 |")
    assert lines[lines.index(detail) + 3].startswith("| FedCM, outside | lr 0.1; weight_decay 0.01; alpha 0.1 |")
    head = latex_table(layout, SCALE).split(r"\toprule")[1].splitlines()
    assert head[1:3] == [r"Variant & lr 0.1 & lr 1 \\", r"\midrule"]


def test_the_details_of_the_only_finished_column_say_which_it_is():
    table2 = PaperExperiment.read("table2")
    here = [cell for cell in cells(table2, SCALE, {}, (0, 1), {}) if cell.column.label == "E = 5" and cell.runs]
    text = markdown(Layout(table2, [entry(cell, FEDMIM, []) for cell in here]), SCALE)
    assert "### CIFAR-10, E = 5 in detail\n" in text


def test_panels_below_each_other_have_one_scale_that_shows_both(layout):
    *common, own = layout.entries
    for factor in (0.5, 1.5):  # tuned far below the shared learning rate's curves, and far above them
        scaled = [
            [r | {"test_accuracy": factor * r["test_accuracy"]} for r in records] for records in own.results.records
        ]
        figure = against_rounds(layout.experiment, [*common, entry(own.cell, scaled, ())])
        above, below = (axes.get_ylim() for axes in figure.axes)
        assert above == below
        for level in (0.52, 0.62, factor * 0.62):
            assert above[0] < level < above[1]


def test_figures_have_a_panel_for_each_column_and_way_and_a_line_for_each_method(layout):
    figure = against_rounds(layout.experiment, layout.entries)
    assert [axes.get_title() for axes in figure.axes] == [
        "CIFAR-10, IID., shared learning rate",
        "CIFAR-10, IID., tuned",
    ]
    named = [[line.get_label() for line in axes.lines if line.get_label()[0] != "_"] for axes in figure.axes]
    assert named == [["FedAvg", "FedMIM"], ["FedMIM"]]
    smoothed = figure.axes[0].lines[1]
    assert list(smoothed.get_xdata()) == [1, *range(3, 13)]  # the rounds that were evaluated
    assert smoothed.get_ydata()[-1] == pytest.approx(0.52)


@pytest.mark.parametrize(("name", "draw"), [("consistency", against_rounds), ("table3", against_rows)])
def test_a_panel_of_which_nothing_is_finished_says_so(name, draw):
    experiment = narrowed(PaperExperiment.read(name), data=("cifar10", "cifar100"), methods="fedmim")
    best = {("cifar10", row.label): {"lr": 1.0} for row in experiment.rows} | {
        ("cifar100", row.label): None for row in experiment.rows
    }
    made = [
        entry(cell, FEDMIM, [])
        for cell in cells(experiment, SCALE, {}, (0, 1), in_all_columns(experiment, best))
        if cell.runs
    ]
    *shown, empty = draw(experiment, made).axes
    assert empty.get_title() == "CIFAR-100, tuned"
    assert [text.get_text() for text in empty.texts] == ["not run yet"]
    assert not empty.axison
    assert all(axes.axison and axes.has_data() for axes in shown)


def test_the_figure_of_the_rates_has_them_on_its_axis():
    experiment = narrowed(PaperExperiment.read("rates"), methods="fedavg,fedmim")
    made = [entry(cell, FEDMIM, []) for cell in cells(experiment, SCALE, {}, (0, 1), {})]
    (axes,) = against_setting(experiment, made).axes
    assert axes.get_xscale() == "log"
    curves = [container.lines[0] for container in axes.containers]
    assert [list(curve.get_xdata()) for curve in curves] == [[0.03, 0.1, 0.3, 1.0, 3.0]] * 2
    assert list(curves[0].get_ydata()) == pytest.approx([0.62] * 5)


def test_the_figure_of_variants_has_a_mean_a_row_a_line_a_seed_and_the_diverged_at_its_edge():
    experiment = narrowed(PaperExperiment.read("decay"), columns=("lr 1",))
    diverged = (records([0.1] * 10), records([0.12] * 10))
    known = {"FedCM, inside": FEDAVG, "FedMIM, inside": FEDMIM, "FedAvg": diverged}
    made = [
        entry(cell, known[cell.row.label], [])
        for cell in cells(experiment, SCALE, {}, (0, 4), {})
        if cell.row.label in known
    ]
    (axes,) = against_rows(experiment, made).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["FedCM, inside", "FedMIM, inside", "FedAvg"]
    seeds = [line.get_xydata().flatten().tolist() for line in axes.lines if line.get_label() == "one seed"]
    assert seeds == [pytest.approx([50, 0, 60, 1]), pytest.approx([54, 0, 64, 1])]
    means = [tuple(line.get_xydata()[0]) for line in axes.lines if line.get_label() == "mean"]
    assert means == [pytest.approx((52, 0)), pytest.approx((62, 1))]
    (far,) = [line for line in axes.lines if line.get_label() == "far behind"]
    assert tuple(far.get_xydata()[0]) == (axes.get_xlim()[0], 2)
    assert 45 < axes.get_xlim()[0] < 50
    assert [text.get_text() for text in axes.texts] == ["52.00", "62.00", "11.00"]


REJECTED = [each | {"refused": 2, "train_loss": None, "consistency": None} for each in FEDAVG[0]]


@pytest.mark.parametrize(
    ("runs", "told"), [((REJECTED, FEDAVG[1]), "1 of 2 diverged"), ((REJECTED, REJECTED), "diverged")]
)
def test_a_row_that_has_diverged_says_so_in_place_of_its_number(layout, runs, told):
    """Also where no other row has a number: figures are drawn all the same."""
    made = [entry(each.cell, runs, each.targets) for each in layout.entries]
    table = Layout(layout.experiment, made)
    assert str(table.number("cifar10", "IID.", "FedAvg", "common")) == told
    assert f"| FedAvg | {told} |" in markdown(table, SCALE)
    assert told in latex_table(table, SCALE)
    against_rows(replace(layout.experiment, plot_against="rows"), made)
    against_setting(replace(layout.experiment, plot_against="lr"), made)


def test_references_are_the_last_rows_not_ranked_and_grey_in_the_figure():
    experiment = narrowed(
        PaperExperiment.read("table1"),
        data=("cifar10",),
        splits=("iid",),
        methods="centralised,fedavg,fedmim,local",
        fair=("common",),
    )
    known = [FEDAVG, FEDMIM, (records([0.9] * 10),) * 2, (records([0.1] * 10),) * 2]
    made = [entry(cell, each, []) for cell, each in zip(cells(experiment, SCALE, {}, (0, 1), {}), known, strict=True)]
    layout = Layout(experiment, made)
    lines = markdown(layout, SCALE).splitlines()
    table = [line.split(" | ")[:2] for line in lines[lines.index("## CIFAR-10") :] if line.startswith("|")][2:6]
    assert [row[0] for row in table] == ["| FedAvg", "| FedMIM", "| Centralised", "| Local only"]
    assert [row[1].startswith("**") for row in table] == [False, True, False, False]
    assert "Centralised and Local only: for reference, not ranked." in legend_text(layout)
    detail = [line.split(" | ")[4] for line in lines[lines.index("### CIFAR-10 in detail") :] if " lr " in line]
    assert detail == ["10.00 (10.00, 10.00)", "-", "-", "-"]
    drawn = {line.get_label(): line for line in against_rounds(experiment, made).axes[0].lines}
    assert (drawn["Centralised"].get_color(), drawn["Centralised"].get_linestyle()) == ("#999999", "--")
    assert (drawn["Local only"].get_color(), drawn["Local only"].get_linestyle()) == ("#999999", ":")
