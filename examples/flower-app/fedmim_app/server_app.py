"""The server, started by `flwr run`."""

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from safetensors.torch import save_file

from fedmim.flower import FlowerStrategy, evaluate_fn
from fedmim_app.task import read, whole_task

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, evaluate on the test data after each round, and save the model if a folder is set."""
    config, run, task = context.run_config, read(context), whole_task(context)
    settings, device = run.config.settings, run.config.execution.device
    strategy = FlowerStrategy(
        run.algorithm,
        settings,
        task.model,
        clients=len(task.clients),
        wait=float(config["wait"]),
        folder=config["folder"] or None,
        resume=bool(config["resume"]),
    )
    evaluate = evaluate_fn(task, settings, device)
    result = strategy.start(grid, timeout=float(config["timeout"]), evaluate_fn=evaluate)
    if config["folder"]:
        save_file(result.arrays.to_torch_state_dict(), Path(config["folder"]) / "model.safetensors")
