"""results.json holds what the summaries say."""

import json
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
from run_folders import method_results

from fedmim.algorithms import Algorithm
from fedmim.results.results_json import as_json, write_json


@dataclass(frozen=True)
class Own(Algorithm):
    title: ClassVar[str] = "Own"
    limit: float | None = None
    kind: str = "none"


def test_a_setting_without_a_value_is_null(tmp_path):
    method = method_results("fedmim", [0.2], folder=tmp_path)
    run = replace(method.run, algorithm=Own())
    text = json.dumps(as_json([replace(method, runs=(replace(method.runs[0], run=run),))], None))
    (line,) = json.loads(text)["methods"]
    assert line["settings"]["server_lr"] is line["settings"]["image_size"] is None
    assert line["hyper_parameters"] == {"limit": None, "kind": "none"}  # a text that reads none is one
    assert text.count('"none"') == 1


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
