"""Run folders and comparisons of version 0.1.0 (FedMIM's history among its hyper-parameters) go on and are reported."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from fedmim import FedMIM, simulate
from fedmim.cli import main
from fedmim.experiments.run_folder import RunFolder

EARLIER = Path(__file__).parent / "earlier_version"


@pytest.fixture
def earlier(tmp_path):
    return shutil.copytree(EARLIER, tmp_path / "earlier")


def test_a_run_goes_on_to_the_model_of_one_that_was_never_stopped(earlier):
    before = RunFolder.open(earlier / "run").metrics()
    assert len(before) == 5
    assert main(["run", "--resume", "--quiet", "--out", str(earlier / "run")]) == 0
    folder = RunFolder.open(earlier / "run")
    assert (folder.run.algorithm, folder.run.config.settings.history) == (FedMIM(), "catch-up")
    records = folder.metrics()
    assert records[:5] == before
    config = folder.run.config
    whole = simulate(FedMIM(), config.task(), config.settings)
    assert [record["bytes_down"] for record in records] == [record.bytes_down for record in whole.history]
    found = load_file(earlier / "run" / "model.safetensors")
    for name, tensor in whole.model.state_dict().items():  # its first rounds may be from another processor
        torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-6)


def test_a_comparison_goes_on_and_is_reported(earlier, tmp_path, capsys):
    out = earlier / "comparison"
    finished = (out / "fedmim-seed0" / "model.safetensors").read_bytes()
    assert main(["compare", "--resume", "--json", "--out", str(out)]) == 0
    methods = json.loads(capsys.readouterr().out)["methods"]
    assert [line["label"] for line in methods] == ["SCAFFOLD", "FedMIM"]
    assert len(RunFolder.open(out / "scaffold-seed0").metrics()) == 8
    assert (out / "fedmim-seed0" / "model.safetensors").read_bytes() == finished
    assert main(["report", str(earlier), "-o", str(tmp_path / "page.html")]) == 0
    assert "3 runs" in capsys.readouterr().out
