"""The table of a comparison on the terminal."""

import io

from rich.console import Console
from run_folders import method_results

from fedmim.report.terminal_table import comparison_table, fitting_table, notes


def cells(table):
    return [[str(cell) for cell in column.cells] for column in table.columns]


def test_the_table_shows_the_metrics_in_their_columns():
    table = comparison_table([method_results("fedavg", [0.2, 0.4]), method_results("fedmim", [0.3, 0.8])], target=0.5)
    columns = dict(zip([str(column.header) for column in table.columns], cells(table), strict=True))
    assert columns["final"] == ["40.00", "80.00"]
    assert columns["to 50%"] == ["never", "2"]
    assert columns["seconds"] == ["1.0", "1.0"]


def test_the_table_says_how_many_seeds_never_reached_the_target_and_gives_the_spread():
    method = method_results("fedavg", [0.2, 0.6], [0.1, 0.4])
    table = comparison_table([method], target=0.5)
    columns = dict(zip([str(column.header) for column in table.columns], cells(table), strict=True))
    assert columns["to 50%"] == ["1 of 2 never"]
    assert columns["final"] == ["50.00 ± 14.14"]
    assert "2 seeds" in notes([method], 0.5)


def test_rejected_uploads_appear_when_there_are_any():
    method = method_results("fedavg", [0.2], target=None)
    assert "rejected" not in [str(column.header) for column in comparison_table([method], None).columns]
    rejecting = method_results("fedavg", [0.2], [0.3], refused=4, target=None)
    table = comparison_table([rejecting], None)
    assert str(table.columns[-1].header) == "rejected"
    assert cells(table)[-1] == ["8"]  # of both seeds together


def test_a_narrow_terminal_has_no_best_accuracy_and_a_narrower_one_no_bytes():
    methods = [method_results("fedavg", [0.2, 0.4], [0.3, 0.5])]
    headings = {}
    for width in (120, 88, 70):
        table = fitting_table(methods, 0.5, Console(width=width, file=io.StringIO()))
        headings[width] = [str(column.header) for column in table.columns]
    assert {"best", "MB up", "MB down"} <= set(headings[120])
    assert "best" not in headings[88]
    assert "MB up" in headings[88]
    assert not {"best", "MB up", "MB down"} & set(headings[70])


def test_a_reference_is_not_in_bold_and_the_notes_say_why():
    pool, alone = method_results("centralised", [0.9]), method_results("local", [0.1])
    methods = [method_results("fedavg", [0.4]), method_results("fedmim", [0.6]), pool, alone]
    table = comparison_table(methods, None)
    (final,) = [column for column in table.columns if str(column.header) == "final"]
    assert [cell.style for cell in final.cells] == ["", "bold", "", ""]
    assert "Centralised and Local only: for reference, not ranked." in notes(methods, None)
    assert [cell.style for cell in comparison_table([pool], None).columns[1].cells] == [""]
