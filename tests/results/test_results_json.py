"""results.json holds what the summaries say."""

import json

import pytest
from run_folders import method_results

from fedmim.results.results_json import write_json


def test_the_json_holds_what_the_summaries_say(tmp_path):
    method = method_results("fedmim", [0.2, 0.6], [0.1, 0.4], folder=tmp_path)
    write_json([method], 0.5, tmp_path / "results.json")
    written = json.loads((tmp_path / "results.json").read_text())
    (line,) = written["methods"]
    assert written["target"] == 0.5
    assert line["hyper_parameters"]["alpha"] == [0.6, 0.3]
    assert [run["final_accuracy"] for run in line["runs"]] == [0.6, 0.4]
    assert line["mean"]["final_accuracy"] == pytest.approx(0.5)
    assert line["mean"]["rounds_to_target"] is None
    assert line["runs"][0]["folder"] == "fedmim-seed0"
