"""The server, started by `flwr run`."""

from contextlib import nullcontext
from dataclasses import replace

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from fedmim.experiments.recording import Recording, save_state
from fedmim.files import make_folder
from fedmim.flower import FlowerStrategy, evaluate_fn
from fedmim_app.options import Options
from fedmim_app.task import read, whole_task

app = ServerApp()


def check(context: Context) -> str:
    """Find mistakes in the configuration; `fedmim flower check` calls this, too."""
    Options.of(context)
    run, task = read(context), whole_task(context)
    return f"{run.algorithm!r}, {run.config.settings}, {len(task.clients)} clients"


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train, evaluate on the test data after each round, and save the model."""
    print(check(context))  # before anything is sent
    options, run, task = Options.of(context), read(context), whole_task(context)
    settings, place = run.config.settings, options.place(context)
    make_folder(place)
    recording = Recording(place, run, task, options.resume) if options.folder else None
    with recording or nullcontext():
        strategy = FlowerStrategy(
            algorithm=run.algorithm,
            settings=settings,
            model=task.model,
            clients=len(task.clients),
            wait=options.wait,
            client_state=options.client_state,
            folder=place if recording else None,
            resume=recording.resumes if recording else False,
        )
        test = evaluate_fn(task, settings, run.config.execution.device)

        def evaluate(round: int, arrays: ArrayRecord) -> MetricRecord | None:
            scores = test(round, arrays)
            if recording and strategy.history:  # not before the first round
                recording.add(replace(strategy.history[-1], **(scores or {})))
            return scores

        result = strategy.start(grid, timeout=options.timeout, evaluate_fn=evaluate)
        save_state(result.arrays.to_torch_state_dict(), place / "model.safetensors", settings.rounds)
    print(f"the model is in {place / 'model.safetensors'}")
