"""The charts of the clients: quantiles over all seeds, points of the first, names as text."""

import numpy as np
import pytest
from run_folders import comparison, evaluate_clients

from fedmim.report.client_charts import client_charts, label_skew
from fedmim.report.page import page, write_page
from fedmim.results.grouping import group_runs
from fedmim.results.loading import load_results


def groups_of(folders):
    return group_runs(load_results(folders))


def charts_of(folders):
    told = []
    (group,) = groups_of(folders)
    return client_charts(group, told.append), told


@pytest.fixture
def folders(tmp_path):
    return comparison(tmp_path, [("fedavg", None, {}), ("fedmim", None, {})], seeds=(0, 1), rounds=3)


def test_the_label_skew_is_the_total_variation_distance_from_all_data():
    counts = np.array([[4, 0], [1, 3], [1, 3]])  # of all data: 6 and 6
    assert label_skew(counts).tolist() == [0.5, 0.25, 0.25]
    assert label_skew(np.array([[2, 6], [1, 3]])).tolist() == [0, 0]


def test_the_distribution_is_over_all_seeds_and_the_points_are_those_of_the_first(folders):
    fedavg = [folder for folder in folders if folder.run.method == "fedavg"]
    evaluate_clients(fedavg[0], (2, [0, 0, 0], None), (3, [0.1, 0.2, None], [0.5, 0.6, None]))
    evaluate_clients(fedavg[1], (3, [0.3, 0.4, 0.5], [0.7, 0.8, 0.9]))
    charts, told = charts_of(folders)
    assert told == []
    assert list(charts.lines) == ["FedAvg"]
    line = charts.lines["FedAvg"]
    assert [line["quantiles"]["model"][at] for at in (0, 25, 50, 75, 100)] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
    assert line["quantiles"]["personal"][50] == pytest.approx(0.7)
    assert line["points"] == {
        "name": ["a", "b"],
        "size": [4, 4],
        "skew": pytest.approx([7 / 12, 5 / 12], rel=1e-4),  # classes 4 0 0, 0 3 1, 1 1 2; of all 5 4 3
        "model": [0.1, 0.2],
        "personal": [0.5, 0.6],
    }
    assert charts.personal
    assert charts.skewed
    assert charts.sentence == "The accuracy on each client's own test data, at the last evaluation (round 3)."


def test_the_clients_with_the_lowest_accuracy_are_listed_by_name(folders, monkeypatch):
    monkeypatch.setattr("fedmim.report.client_charts.LOWEST", 2)
    for folder in folders:
        named = {} if folder.run.method == "fedavg" else {"names": None}
        evaluate_clients(folder, (3, [0.875, None, 0.25], None), **named)
    charts, _ = charts_of(folders)
    assert charts.lowest == {"FedAvg": [("<b>c</b>", 0.25), ("a", 0.875)]}  # FedMIM's clients have no names
    text = page(groups_of(folders))
    assert "<td>&lt;b&gt;c&lt;/b&gt;: 25.0%</td><td>a: 87.5%</td>" in text


def test_training_data_is_called_so_and_many_clients_are_thinned_by_size(folders, monkeypatch):
    monkeypatch.setattr("fedmim.report.client_charts.MOST_POINTS", 2)
    more = {"evaluated_on": "train", "test_sizes": None, "names": None, "sizes": [9, 5, 7, 6]}
    evaluate_clients(folders[0], (3, [0.9, 0.5, 0.7, 0.6], None), **more)
    charts, _ = charts_of(folders)
    assert "own training data, because the data set has no test data per client" in charts.sentence
    points = charts.lines["FedAvg"]["points"]
    assert (points["name"], points["size"], points["model"]) == (["1", "2"], [5, 7], [0.5, 0.7])
    assert points["skew"] is None  # clients.json has other clients
    assert charts.lines["FedAvg"]["quantiles"]["personal"] is None
    assert not charts.personal


def test_without_evaluations_there_is_no_chart_and_a_damaged_file_is_named(folders):
    assert charts_of(folders) == (None, [])
    evaluate_clients(folders[0], (3, [0.5], None))
    charts, told = charts_of(folders)
    assert charts is None
    assert "line 2 is damaged" in told[0]


def test_the_page_draws_the_clients_and_switches_between_models_and_axes(visit, folders, tmp_path):
    for folder in folders:
        evaluate_clients(folder, (3, [0.1, 0.2, 0.9], [0.5, 0.6, 1]))
    write_page(groups_of(folders), tmp_path / "report.html")
    page = visit((tmp_path / "report.html").as_uri())
    page.wait_for_selector("[data-chart=client_points][data-drawn]", state="attached")

    def drawn(chart):
        script = f"document.querySelector('[data-chart={chart}]').data.map((one) => [[...one.x], [...one.y]])"
        return page.evaluate(script)

    assert [y for _, y in drawn("client_points")] == [[0.1, 0.2, 0.9]] * 2
    assert drawn("client_points")[0][0] == [4, 4, 400]
    assert drawn("client_quantiles")[0][0][50] == pytest.approx(0.2)
    page.click("[data-scores=personal]")
    page.click("[data-by=skew]")
    assert [y for _, y in drawn("client_points")] == [[0.5, 0.6, 1]] * 2
    assert drawn("client_quantiles")[0][0][50] == pytest.approx(0.6)
    assert max(drawn("client_points")[0][0]) <= 1
    assert page.get_attribute("[data-x=round]", "aria-pressed") == "true"
    assert page.get_attribute("[data-scores=model]", "aria-pressed") == "false"
    page.click(".legend button[data-label=FedAvg]")
    assert len(drawn("client_points")) == 1
    hover = page.evaluate("document.querySelector('[data-chart=client_points]').data[0].customdata[2]")
    assert "client &lt;b&gt;c&lt;/b&gt;" in hover
    page.set_viewport_size({"width": 360, "height": 800})
    page.wait_for_timeout(200)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    ends = "[...document.querySelectorAll('figcaption')].map((one) => one.scrollWidth - one.clientWidth)"
    assert page.evaluate(ends) == [0] * len(page.query_selector_all("figcaption"))
