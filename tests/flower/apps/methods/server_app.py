"""Trains with every method, one after the other, and writes every round's model and bytes."""

import json
from pathlib import Path

from flwr.serverapp import ServerApp
from safetensors.torch import save_file
from shared import CASES, TASK

from fedmim.flower import FlowerStrategy

app = ServerApp()


@app.main()
def main(grid, context):
    """Run all methods."""
    out = Path(str(context.run_config["out"]))
    for number, (algorithm, settings) in enumerate(CASES.values()):
        models = {}

        def see(round, arrays, models=models):
            models |= {f"{round}/{name}": value for name, value in arrays.to_torch_state_dict().items()}

        strategy = FlowerStrategy(algorithm, TASK.model, settings, clients=len(TASK.clients), wait=60.0)
        strategy.start(grid, timeout=60.0, evaluate_fn=see)
        save_file(models, out / f"{number}.safetensors")
        facts = [(record.bytes_down, record.bytes_up, record.clients) for record in strategy.history]
        (out / f"{number}.json").write_text(json.dumps({"rounds": facts, "failures": strategy.failures}))
