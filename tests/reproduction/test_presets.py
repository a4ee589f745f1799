"""Each preset from end to end, at toy size, on made-up data in the official format: runs, searches, tables, figures."""

import re

import pytest
import small_cifar
import small_tiny_imagenet

from fedmim.cli import main
from fedmim.files import LOCK
from fedmim.reproduction.experiment import EXPERIMENTS, PRESETS, PaperExperiment
from fedmim.reproduction.plan import cells
from fedmim.reproduction.scale import Scale

TOY = {
    "rounds": "2",
    "eval_every": "1",
    "clients": "5",
    "participation": "0.4",
    "model": '"logistic"',
    "trials": "1",
    "rate_trials": "1",
}


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """Writes a preset at toy size, all else as it is, and gives the words to run it with."""
    small_cifar.write(tmp_path / "data", monkeypatch)
    monkeypatch.setenv("FEDMIM_DATA", str(tmp_path / "data"))

    def words(scale, *rest):
        text = (PRESETS / f"{scale}.toml").read_text()
        for name, value in TOY.items():
            text, count = re.subn(rf"\b{name} = [^,}}\n#]+", f"{name} = {value}", text)
            assert count, name
        path = tmp_path / f"{scale}.toml"
        path.write_text(text)
        assert Scale.read(str(path)).settings["rounds"] == 2
        return [*rest, "--scale", str(path), "--seeds", "0", "--engine", "serial", "--out", str(tmp_path / "out")]

    return words


def written(folder):
    return {path.name for path in folder.iterdir() if path.is_file()} - {LOCK}


def test_the_cpu_preset_makes_every_table_and_figure_of_the_paper(toy, tmp_path, capsys):
    words = toy("cpu", "reproduce", "all", "--methods", "fedavg,fedmim", "--data", "cifar10")
    assert main(words) == 0
    printed = capsys.readouterr()
    assert "assumed: split Dirichlet 0.6" in printed.err
    out = tmp_path / "out"
    names = ("table1", "table2", "table3", "participation", "consistency")
    tables = {f"{name}.{ending}" for name in names for ending in ("md", "csv", "tex")}
    figures = {"table1-cifar10", "table2-cifar10", *names[2:]}
    figures = {f"{name}.{ending}" for name in figures for ending in ("png", "svg")}
    assert written(out) == {"report.html"} | tables | figures
    text = (out / "table1.md").read_text()
    for number in ("75.92", "**80.82**"):  # the paper's, the best in bold
        assert f"| {number} |" in text
    assert "tuned" in text
    assert "CIFAR-100" not in text
    assert "**84.98**" in (out / "table3.md").read_text()
    # The only trial of a search is its start, so own settings are the common ones: 2 methods in Table I's 3 columns, in
    # Table II's 3 and in Figure 2a's 2. Table III has nine rows, one of them, all rounds being 2 here, as Table II's at
    # E = 1. Figure 2b's runs are Table I's at DIR.1.
    assert len(list((out / "runs").iterdir())) == 2 * 3 + 2 * 3 + 2 * 2 + 9 - 1
    assert len(list((out / "tune").iterdir())) == 2 + 9
    for folder in (out / "tune").iterdir():
        assert {"best.toml", "search.png", "search.svg"} <= written(folder)


def test_data_sets_that_are_not_there_are_left_out_and_tables_are_made_again_without_runs(toy, tmp_path, capsys):
    words = toy("cpu", "reproduce", "consistency", "--methods", "fedavg,fedmim", "--fair", "common")
    assert main(words) == 0
    out = tmp_path / "out"
    text = (out / "consistency.md").read_text()
    assert all(word in text for word in ("CIFAR-10\n", "CIFAR-100\n", "smaller is better"))
    before = {name: (out / name).read_bytes() for name in written(out) - {"report.html"}}  # the page has the time
    (out / "runs").rename(out / "gone")
    assert main([*words, "--tables-only"]) == 0
    assert "no run is finished yet" in capsys.readouterr().out
    (out / "gone").rename(out / "runs")
    assert main([*words, "--tables-only"]) == 0
    assert {name: (out / name).read_bytes() for name in written(out) - {"report.html"}} == before
    (tmp_path / "data" / "cifar-100-python" / "train").unlink()
    assert main(words) == 0
    assert "skipped: cifar100" in capsys.readouterr().err


def test_an_excerpt_of_tiny_imagenet_has_a_name_of_its_own_and_not_the_papers_numbers(toy, tmp_path, capsys):
    small_tiny_imagenet.write(tmp_path / "data")
    out = tmp_path / "out"
    words = toy("cpu", "reproduce", "table1", "--fair", "common", "--methods", "fedavg,fedmim", "--split", "iid")
    assert main([*words, "--data", "tiny-imagenet"]) == 2
    assert main(words) == 0
    assert "skipped: tiny-imagenet" in (errors := capsys.readouterr().err)
    assert "3 of 200 classes; use --data tiny-imagenet:3 for these only" in " ".join(errors.split())
    assert main([*words, "--data", "tiny-imagenet:3"]) == 0
    text = (out / "table1.md").read_text()
    part = text.split("## TinyImageNet, 3 of 200 classes\n\n")[1].split("\n\n")[0]
    assert [line.split("|")[1::2] for line in part.splitlines()[2:]] == [[" FedAvg ", " - "], [" FedMIM ", " - "]]
    assert "| 82.16 |" in text  # the paper's, on CIFAR-10
    assert {"table1-tiny-imagenet-3.png", "table1-tiny-imagenet-3.svg"} <= written(out)


def test_the_papers_preset_runs_and_a_narrowed_sweep_adds_to_the_tables_there(toy, tmp_path, capsys):
    out = tmp_path / "out"
    words = toy("paper", "reproduce", "table1", "--fair", "common", "--methods", "fedavg,scaffold")
    assert main([*words, "--data", "cifar10", "--split", "iid"]) == 0
    assert "DIR.3" not in (out / "table1.md").read_text()
    assert main([*words, "--data", "cifar100", "--split", "dirichlet:0.3", "--keep-models"]) == 0
    text = (out / "table1.md").read_text()
    assert all(word in text for word in ("CIFAR-10\n", "CIFAR-100\n", "IID.", "DIR.3", "82.16", "48.34"))
    assert len(list((out / "runs").iterdir())) == 4
    assert len(list((out / "models").iterdir())) == 2
    assert not (out / "tune").exists()


def test_the_ablations_run(toy, tmp_path):
    assert main(toy("cpu", "reproduce", "ablations", "--methods", "fedcm,fedmim")) == 0
    names = ("rates", "decay", "inertia")
    endings = ("md", "csv", "tex", "png", "svg")
    tables = {f"{name}.{ending}" for name in names for ending in endings}
    assert written(tmp_path / "out") == {"report.html", *tables}
    assert len(list((tmp_path / "out" / "runs").iterdir())) == 2 * 5 + 4 * 2 + 11 * 2 - 6  # rates 0.1 and 1 come again


def test_the_family_is_ranked_and_has_a_line_per_seed(toy, tmp_path):
    methods = ("--methods", "fedavg,fedavg+leap", "--columns", "DIR.1 10 % E = 1,IID. 10 % E = 1")
    assert main(toy("mnist1d", "reproduce", "family", *methods)) == 0
    endings = ("family.md", "family.csv", "family.tex", "family.png", "family.svg", "family-seeds.csv")
    assert written(tmp_path / "out") == {"report.html", *endings}
    text = (tmp_path / "out" / "family.md").read_text()
    assert "## Ranks" in text
    assert "of 2 |" in text  # two columns, one seed
    assert len((tmp_path / "out" / "family-seeds.csv").read_text().splitlines()) == 1 + 2 * 2
    assert len(list((tmp_path / "out" / "tune").iterdir())) == 4  # a search for each method and column


def test_the_questions_beyond_the_paper_run(toy, tmp_path):
    assert main(toy("mnist1d", "reproduce", "look-ahead", "--columns", "lr 1 K = 1", "--methods", "fedmim")) == 0
    assert main(toy("cpu", "reproduce", "drift", "--methods", "scaffold")) == 0
    names = {f"{name}.{ending}" for name in ("look-ahead", "drift") for ending in ("md", "csv", "tex", "png", "svg")}
    assert written(tmp_path / "out") == {"report.html", *names}


@pytest.mark.parametrize(
    ("scale", "name"), [(scale, name) for name in EXPERIMENTS for scale in PaperExperiment.read(name).fits]
)
def test_accuracies_are_means_of_ten_evaluations_in_table_three_of_five_in_short_runs_of_resnet_of_four(scale, name):
    few = {("cpu", "table3", "accuracy"): 5, ("cpu", "resnet", "40 rounds"): 4}
    for cell in cells(PaperExperiment.read(name), Scale.read(scale), {}, (0,), {}):
        fewest = few.get((scale, name, cell.column.label), 10)
        for run in cell.runs:
            settings = run.config.settings
            late = [each for each in range(1, settings.rounds + 1) if 3 * each > 2 * settings.rounds]
            assert min(10, sum(each % settings.eval_every == 0 for each in late)) == fewest, cell.column.label


def test_a_dry_run_shows_the_grid_and_trains_nothing(toy, tmp_path, capsys):
    words = toy("cpu", "reproduce", "table1", "--methods", "fedavg,fedsam", "--data", "cifar10", "--split", "iid")
    assert main([*words, "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[1:7]] == [["table1", "cifar10"]] * 4 + [["search", "cifar10"]] * 2
    assert "in total" in lines[-1]
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["reproduce", "tabel1"], "did you mean 'table1'"),
        (["reproduce", "--scale", "cpu"], "give the experiment first"),
        (["reproduce", "table1", "--rounds", "3"], "out: rounds differs from the scale"),
        (["reproduce", "table1", "--scale", "gpu"], "scale: 'gpu' is not known"),
        (["reproduce", "table1", "--fair", "common,fair"], "fair: 'fair' is not known"),
        (["reproduce", "table1", "--data", "cifar11", "--fair", "common"], "did you mean 'cifar10'"),
        (["tune"], "give the method first"),
        (["tune", "fedmin"], "did you mean 'fedmim'"),
        (["tune", "fedavg", "--lr", "0.1"], "no setting is left to search"),
    ],
)
def test_mistakes_are_one_line(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDMIM_DATA", str(tmp_path))
    assert main(words) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_without_its_data_the_remedy_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDMIM_DATA", str(tmp_path))
    assert main(["reproduce", "table1"]) == 2
    errors = capsys.readouterr().err
    assert "fedmim data fetch cifar10" in errors
    assert "none of cifar10, cifar100, tiny-imagenet was found" in errors


def test_the_experiments_are_listed(capsys):
    assert main(["reproduce"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in ("table1", "participation", "inertia", "ablations"))
