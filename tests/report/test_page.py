"""The page, in a browser: what it shows is what the runs say."""

import json
from dataclasses import replace

import numpy as np
import pytest
from plotly.offline import get_plotlyjs
from run_folders import comparison, fill, record, rising

from fedmim.algorithms import PAPER
from fedmim.experiments.config import defaults
from fedmim.experiments.run import Run
from fedmim.experiments.run_folder import RunFolder
from fedmim.report.curves import smooth
from fedmim.report.page import unwrapped, write_page
from fedmim.results.grouping import group_runs
from fedmim.results.loading import find_runs, load_results
from fedmim.results.method_results import by_label
from fedmim.results.results_json import write_json

MARKUP = "<b onclick='x'>bold</b> & <img src=x onerror=alert(1)> {{ 7 * 7 }} </script> %{x}"
ENTRIES = [("fedavg", None, {}), ("scaffold", None, {}), ("fedmim", None, {}), ("fedmim", "FedMIM fast", {"lr": 0.3})]


def page_of(folder, path):
    write_page(group_runs(load_results(find_runs([folder], pytest.fail))), path)
    return path.as_uri()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A comparison, its results.json and its page."""
    folder = tmp_path_factory.mktemp("page")
    folders = comparison(folder / "runs", ENTRIES, seeds=(0, 1))
    write_json(by_label(load_results(folders), 0.5), 0.5, folder / "results.json")
    results = json.loads((folder / "results.json").read_text())
    return page_of(folder / "runs", folder / "report.html"), {line["label"]: line for line in results["methods"]}


PLOTS = "[...document.querySelectorAll('.chart')].filter((box) => box.querySelector('.main-svg'))"


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """The page of two problems."""
    folder = tmp_path_factory.mktemp("several")
    for split in ("iid", "dirichlet:0.1"):
        comparison(folder / "runs" / split.split(":")[0], ENTRIES[:2], split=split, rounds=20)
    return page_of(folder / "runs", folder / "report.html")


def drawn(page, chart):
    """The lines of a chart with their names, as plotly has them."""
    script = """chart => document.querySelector(`[data-chart=${chart}]`).data
        .filter(trace => trace.name).map(({name, x, y, line}) => ({name, x: [...x], y: [...y], colour: line.color}))"""
    return {trace["name"]: trace for trace in page.evaluate(script, chart)}


def until(page, condition):
    """Wait for something to hold; the page's own policy keeps playwright from doing so by itself."""
    for _ in range(600):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"never: {condition}")


def unsmoothed(page, chart):
    """Move the slider to zero, where a line has no faint one behind it: it and its band are left."""
    page.locator(".smoothing input").fill("0")
    until(page, f"document.querySelector('[data-chart={chart}]').data.length === {2 * len(ENTRIES)}")


def hover(page, chart, name, at):
    """The text of the box that shows when the mouse is over a point of a line."""
    box = page.locator(f"[data-chart={chart}]")
    box.scroll_into_view_if_needed()
    script = """(box, [name, at]) => {
        const trace = box.data.find((each) => each.name === name), {xaxis, yaxis} = box._fullLayout;
        const area = box.getBoundingClientRect();
        return [area.x + xaxis._offset + xaxis.d2p(trace.x.at(at)), area.y + yaxis._offset + yaxis.d2p(trace.y.at(at))];
    }"""
    x, y = box.evaluate(script, [name, at])
    page.mouse.move(x - 1, y)
    page.mouse.move(x, y)
    label = page.locator(f"[data-chart={chart}] .hoverlayer").first
    label.locator("text").first.wait_for()
    return label.text_content()


def test_the_verdict_and_the_table_are_those_of_results_json(visit, made):
    address, results = made
    page = visit(address)
    cards = page.locator(".card").all_inner_texts()
    means = {label: line["mean"] for label, line in results.items()}
    best = max(means, key=lambda label: means[label]["last_ten_accuracy"])
    assert best in cards[0]
    assert f"{100 * means[best]['last_ten_accuracy']:.2f}%" in cards[0]
    fewest = min(means, key=lambda label: means[label]["rounds_to_target"])
    assert fewest in cards[1]
    assert f"\n{means[fewest]['rounds_to_target']:.0f}\n" in cards[1]
    cheapest = min(means, key=lambda label: means[label]["bytes_to_target"])
    assert cheapest in cards[2]
    closest = min(means, key=lambda label: means[label]["consistency"])
    assert closest in cards[3]
    assert f"{means[closest]['consistency']:.2g}" in cards[3]
    ratio = means["FedAvg"]["consistency"] / means[closest]["consistency"]
    assert f"({ratio:.3g}×)" in cards[3]

    head = [text.replace("\xa0", " ") for text in page.locator(".runs thead th").all_inner_texts()]
    rows = [row.locator("th, td").all_inner_texts() for row in page.locator(".runs tbody tr").all()]
    assert len(rows) == 8
    for row in rows:
        cells = dict(zip(head, (cell.strip() for cell in row), strict=True))
        run = results[cells["Method"]]["runs"][int(cells["Seed"])]
        assert cells["Final (%)"] == f"{100 * run['final_accuracy']:.2f}"
        assert cells["Best (%)"] == f"{100 * run['best_accuracy']:.2f}"
        assert cells["Rounds to 50%"] == str(run["rounds_to_target"])
        assert cells["Folder"] == run["folder"]
    marked = page.locator(".runs mark").all_inner_texts()
    assert marked == ["0.3", "0.3"]


def test_the_curves_are_the_smoothed_means_over_seeds(visit, made):
    page = visit(made[0])
    expected = [rising(0.7 + 0.01 * seed, 40) for seed in (0, 1)]
    line = drawn(page, "accuracy")["FedAvg"]
    assert line["x"] == list(range(1, 41))
    assert np.allclose(line["y"], np.mean([smooth(np.array(row)) for row in expected], axis=0), atol=1e-6)
    unsmoothed(page, "accuracy")
    assert np.allclose(drawn(page, "accuracy")["FedAvg"]["y"], np.mean(expected, axis=0), atol=1e-6)
    assert page.locator(".smoothing output").inner_text() == "0%"


def test_hovering_shows_every_methods_unsmoothed_figure(visit, made):
    address, results = made
    text = hover(visit(address), "accuracy", "FedAvg", -1)
    assert "Round 40" in text
    for label, line in results.items():
        finals = [run["final_accuracy"] for run in line["runs"]]
        assert f"{label}: {100 * np.mean(finals):.2f}% ({100 * min(finals):.2f}% to {100 * max(finals):.2f}%)" in text


def test_the_legend_hides_a_method_everywhere_and_shows_one_alone(visit, made):
    page = visit(made[0])
    everyone = [
        entry[1] or {"fedavg": "FedAvg", "scaffold": "SCAFFOLD", "fedmim": "FedMIM"}[entry[0]] for entry in ENTRIES
    ]
    assert list(drawn(page, "accuracy")) == everyone
    button = page.get_by_role("button", name="SCAFFOLD")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    for chart in ("accuracy", "loss", "consistency"):
        page.locator(f"[data-chart={chart}][data-drawn]").wait_for()
        assert list(drawn(page, chart)) == [name for name in everyone if name != "SCAFFOLD"]
    button.click()
    assert list(drawn(page, "accuracy")) == everyone
    button.dblclick()
    assert list(drawn(page, "accuracy")) == ["SCAFFOLD"]
    button.dblclick()
    assert list(drawn(page, "accuracy")) == everyone


def test_the_axes_switch_to_bytes_and_seconds(visit, made):
    page = visit(made[0])
    page.get_by_role("button", name="Bytes sent").click()
    lines = drawn(page, "accuracy")
    assert lines["FedAvg"]["x"][-1] == 40 * (1000 + 2000)
    assert lines["FedMIM"]["x"][-1] == 40 * (3000 + 2000)
    assert "Bytes sent" in page.locator("[data-chart=accuracy] .xtitle").text_content()
    text = hover(page, "accuracy", "FedAvg", 19)
    assert "FedAvg" in text
    assert "round 20, 60 kB" in text
    assert f"{100 * np.mean([rising(0.7 + 0.01 * seed, 40)[19] for seed in (0, 1)]):.2f}%" in text
    page.get_by_role("button", name="Seconds").click()
    assert drawn(page, "consistency")["FedAvg"]["x"][-1] == pytest.approx(40 * (0.25 + 0.26) / 2)
    page.get_by_role("button", name="Training").click()
    page.locator("[data-chart=loss][data-drawn]").wait_for()
    unsmoothed(page, "loss")
    final = np.mean([1 - rising(0.7 + 0.01 * seed, 40)[-1] / 2 for seed in (0, 1)])
    assert drawn(page, "loss")["FedAvg"]["y"][-1] == pytest.approx(final, abs=1e-5)
    assert page.evaluate("document.querySelector('[data-chart=consistency]').layout.yaxis.type") == "log"


def test_who_holds_what_is_drawn_by_largest_class(visit, made):
    page = visit(made[0])
    box = page.locator("[data-chart=skew]")
    box.scroll_into_view_if_needed()
    page.locator("[data-chart=skew][data-drawn]").wait_for()
    shares = page.evaluate("document.querySelector('[data-chart=skew]').data[0].z.map(row => [...row])")
    # clients 0 (all of class 0), 1 (three of four of class 1), 2 (half of class 2)
    assert np.allclose(shares, [[1, 0, 0.25], [0, 0.75, 0.25], [0, 0.25, 0.5]])
    assert "from 2.0 of the 3 classes on average" in page.locator(".sentence").nth(1).inner_text()


def test_a_click_on_a_heading_sorts_the_runs_by_value(visit, made):
    page = visit(made[0])
    for box in page.locator(".chart").all():  # drawn when they come near; nothing must move under the click
        box.scroll_into_view_if_needed()
        page.wait_for_function("box => box.dataset.drawn", arg=box.element_handle())
    heading = page.locator(".runs thead th", has_text="Client drift")
    heading.click()
    column = page.locator(".runs thead th").all_inner_texts().index("Client\xa0drift")
    values = [float(row.locator("th, td").nth(column).inner_text()) for row in page.locator(".runs tbody tr").all()]
    assert values == sorted(values)
    heading.click()
    assert heading.get_attribute("aria-sort") == "descending"


def test_no_button_of_a_chart_sends_anything_anywhere(visit, made):
    page = visit(made[0])
    titles = "[...document.querySelectorAll('.modebar-btn')].map(button => button.dataset.title)"
    assert set(page.evaluate(titles)) == {"Download plot", "Zoom", "Pan", "Reset axes"}


def test_light_and_dark_follow_the_reader_and_the_button(visit, made):
    page = visit(made[0], scheme="dark")
    paper = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(paper) == "rgb(20, 23, 27)"
    grid = "document.querySelector('[data-chart=accuracy]').layout.xaxis.gridcolor"
    assert page.evaluate(grid) == "#262b32"
    page.locator("#theme").click()
    assert page.evaluate(paper) == "rgb(255, 255, 255)"
    assert page.evaluate(grid) == "#eceef1"


def test_nothing_sticks_out_of_a_window_of_any_width(visit, made):
    page = visit(made[0])
    for width in (1280, 768, 390, 320):
        page.set_viewport_size({"width": width, "height": 900})
        until(page, f"document.querySelector('[data-chart=accuracy] .main-svg').clientWidth < {width}")
        assert page.evaluate("document.documentElement.scrollWidth") == width


def test_markup_in_names_is_shown_as_text(visit, tmp_path):
    comparison(tmp_path / "runs", [("fedavg", MARKUP, {}), ("fedmim", "$x^2$ [red]a[/]", {})], rounds=30)
    page = visit(page_of(tmp_path / "runs", tmp_path / "report.html"))
    assert page.locator(".legend button").first.inner_text() == MARKUP
    assert page.locator(".runs tbody th").first.inner_text().strip() == MARKUP
    assert page.locator("img, b[onclick]").count() == 0
    assert MARKUP in hover(page, "accuracy", "$x^2$ [red]a[/]", -1)
    page.get_by_role("button", name="Bytes sent").click()
    escaped = MARKUP.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    assert MARKUP in hover(page, "accuracy", escaped, -1)
    page.locator(".legend button").first.click()
    assert len(drawn(page, "accuracy")) == 1


def test_markup_in_methods_folders_data_and_damage_is_shown_as_text(visit, tmp_path):
    name = MARKUP.replace("/", "") + '"quoted"'
    values = defaults("digits") | {"rounds": 2}
    for seed, text in enumerate(['{"round": 1, "<img src=x onerror=alert(1)>": [', None]):
        for method, data in (("fedavg", f"folder:{MARKUP}"), (f"{MARKUP}.py:{MARKUP}", "digits")):
            own = values if data == "digits" else values | {"data": data}
            run = replace(Run.make("fedavg", own, MARKUP).replace(seed=seed), method=method)
            folder = RunFolder.create(tmp_path / "runs" / f"{seed} {data == 'digits'} {name}", run)
            fill(folder, [record(1, 0.5), record(2, 0.5)])
            if text:
                (folder.path / "metrics.jsonl").write_text(text + "\n")
    left_out = []
    groups = group_runs(load_results(find_runs([tmp_path / "runs"], pytest.fail), left_out.append))
    assert len(left_out) == 2
    write_page(groups, tmp_path / "report.html", left_out)
    page = visit((tmp_path / "report.html").as_uri())
    assert page.locator("img, b[onclick]").count() == 0
    assert page.locator("h2").all_inner_texts() == [f"folder:{MARKUP}, dirichlet:0.1", "digits, dirichlet:0.1"]
    assert page.locator(".runs .folder").all_inner_texts() == [f"1 False {name}", f"1 True {name}"]
    assert page.locator(".notice li").all_inner_texts() == left_out
    assert "<img src=x onerror=alert(1)> {{ 7 * 7 }} </script>" in page.locator("pre").nth(1).inner_text()


def test_a_spike_of_a_long_run_is_drawn_and_the_smoothed_curve_is_that_of_the_evenly_spaced_rounds(visit, tmp_path):
    (folder,) = comparison(tmp_path / "runs", [("fedavg", None, {})], rounds=5000)
    fill(folder, [record(t, 0.5, loss=1e4 if t == 1234 else 1.0) for t in range(1, 5001)])
    page = visit(page_of(tmp_path / "runs", tmp_path / "report.html"))
    page.locator("[data-chart=loss]").scroll_into_view_if_needed()
    page.wait_for_selector("[data-chart=loss][data-drawn]")
    script = "[...document.querySelector('[data-chart=loss]').data].map(each => [each.x.length, Math.max(...each.y)])"
    raw, smoothed = page.evaluate(script)
    assert raw[1] == 1e4
    assert smoothed == [1000, 1]


def test_runs_in_progress_are_drawn_thin_and_told_as_such(visit, tmp_path):
    values = defaults("digits") | {"rounds": 4}
    for seed, length in ((0, 3), (1, 1), (2, 0)):
        run = Run.make("fedavg", values).replace(seed=seed)
        folder = RunFolder.create(tmp_path / "runs" / str(seed), run)
        fill(folder, [record(t, 0.1 * t) for t in range(1, length + 1)])
    page = visit(page_of(tmp_path / "runs", tmp_path / "report.html"))
    assert "0 of 3 runs have ended" in page.locator(".sentence").first.inner_text()
    assert "after 3 of 4 rounds" in page.locator(".card").first.inner_text()
    assert np.allclose(drawn(page, "accuracy")["FedAvg"]["y"], [0.1, 0.2, 0.3])
    rounds = [row.locator("td").nth(1).inner_text() for row in page.locator(".runs tbody tr").all()]
    assert rounds == ["3 of 4", "1 of 4", "0 of 4"]


def test_several_problems_have_an_overview_and_a_section_each(visit, several):
    page = visit(several)
    assert page.locator("h2").all_inner_texts() == ["digits, dirichlet:0.1", "digits, iid"]
    cells = page.locator(".overview tbody tr").nth(1).locator("td").all_inner_texts()
    expected = f"{100 * np.mean(rising(0.75, 20)[-7:]):.2f}"
    assert cells == [expected, expected]
    assert page.locator(".overview .best").count() == 2


def test_a_sweep_of_21_runs_of_1000_rounds_is_a_small_file_with_all_its_points(visit, tmp_path):
    comparison(tmp_path / "runs", [(name, None, {}) for name in PAPER], seeds=(0, 1, 2), rounds=1000)
    address = page_of(tmp_path / "runs", tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size < 6e6
    lines = drawn(visit(address), "accuracy")
    assert len(lines) == 7
    assert all(len(line["x"]) == 1000 for line in lines.values())


def test_plotly_goes_in_without_its_wrapper_and_with_its_licence():
    script = get_plotlyjs()
    bare = unwrapped(script)
    assert 0 < len(script) - len(bare) < 1000
    assert "Licensed under the MIT license" in bare[:200]
    assert bare.rstrip().endswith("window.Plotly = Plotly;")
    assert unwrapped("of another shape") == "of another shape"


def test_a_page_prints_with_every_chart_on_paper(visit, made):
    page = visit(made[0])
    # Remember what the browser has drawn when it starts to print; the test asks afterwards.
    page.evaluate("addEventListener('beforeprint', () => (window.atPrint = boxes().length))".replace("boxes()", PLOTS))
    page.emulate_media(media="print")
    assert page.pdf()[:5] == b"%PDF-"
    assert page.evaluate("window.atPrint") == 4


def test_charts_outside_the_window_are_drawn_without_scrolling(visit, several):
    page = visit(several, height=300)
    until(page, f"{PLOTS}.length === 8")  # accuracy, loss, drift and clients of two problems
    assert page.evaluate("scrollY") == 0
    page.locator("#theme").click()  # all charts follow, near ones at once and the others when the browser is idle
    until(page, f"{PLOTS}.every((box) => box.dataset.drawn && box.layout.xaxis.gridcolor === '#262b32')")


def test_the_first_chart_of_a_phone_starts_above_the_fold(visit, tmp_path):
    comparison(tmp_path / "runs", [(name, None, {}) for name in PAPER], seeds=(0, 1), rounds=20)
    page = visit(page_of(tmp_path / "runs", tmp_path / "report.html"), width=390, height=844)
    box = page.locator("[data-chart=accuracy]").bounding_box()
    assert box["y"] < 844 - box["height"] / 2  # at least half of it is visible
    assert page.locator(".card").nth(1).bounding_box()["x"] < 390  # the next card shows that there are more


def accuracy_axis(page):
    """The range of the accuracy axis, the lowest value that is drawn, and the notes in the chart."""
    script = """() => { const box = document.querySelector('[data-chart=accuracy]');
        return [box.layout.yaxis.range, Math.min(...box.data.flatMap(({y}) => [...y])),
                (box.layout.annotations ?? []).map(({text}) => text)]; }"""
    return page.evaluate(script)


@pytest.mark.parametrize("rounds", [12, 63])
def test_the_accuracy_axis_shows_every_marker_or_says_what_is_outside(visit, tmp_path, rounds):
    run = Run.make("fedavg", defaults("digits") | {"rounds": rounds}, "a")
    folder = RunFolder.create(tmp_path / "runs" / "a", run)
    accuracies = [0.1, 0.2, 0.855, *np.linspace(0.86, 0.89, rounds - 3)]
    fill(folder, [record(t, float(accuracy)) for t, accuracy in enumerate(accuracies, start=1)])
    (low, high), lowest, told = accuracy_axis(visit(page_of(tmp_path / "runs", tmp_path / "report.html")))
    notes = [text for text in told if "target" not in text]
    assert lowest == 0.1
    assert high > 0.89
    if rounds == 12:  # few points, so each has a marker
        assert low < 0.1
        assert notes == []
    else:  # without markers, the two lowest points would take most of the axis
        assert low == 0.86
        assert notes == ["values below 86% are outside the first view ↓"]


def test_a_reference_is_grey_and_a_level_line_against_bytes_and_never_the_best(visit, tmp_path):
    comparison(tmp_path / "runs", [("fedavg", None, {}), ("centralised", None, {})])
    comparison(tmp_path / "more", [("fedavg", None, {}), ("centralised", None, {})], split="iid")
    page = visit(page_of(tmp_path / "runs", tmp_path / "report.html"))
    assert drawn(page, "accuracy")["Centralised"]["colour"] == "#999999"
    assert page.locator(".card .whose", has_text="Centralised").count() == 0
    page.get_by_role("button", name="Bytes sent").click()
    lines = drawn(page, "accuracy")
    assert lines["Centralised"]["x"] == [0, 40 * (2000 + 2000)]  # the longest line; a real reference sends nothing
    last = rising(0.75, 40)[-1]
    assert lines["Centralised"]["y"] == pytest.approx([last, last], abs=0.01)
    page = visit(page_of(tmp_path, tmp_path / "both.html"))
    assert set(page.locator(".overview tr:has(.best) th").all_text_contents()) == {"FedAvg"}
