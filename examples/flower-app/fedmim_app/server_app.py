"""The server, started by `flwr run`."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedmim.experiments.run_folder import MODEL, save_model
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
    strategy = FlowerStrategy(
        run.algorithm,
        task.model,
        settings,
        clients=len(task.clients),
        wait=options.wait,
        client_state=options.client_state,
        partition_keys=options.partition_keys,
        folder=place if options.folder else None,
        resume=options.resume,
        problem=run.config.problem,
        label=run.label,
    )
    test = evaluate_fn(task, settings, run.config.execution.device)
    strategy.start(grid, timeout=options.timeout, evaluate_fn=test)
    if not options.folder:  # a run folder has the model
        make_folder(place)
        save_model(strategy.module, place / MODEL, settings.rounds)
    print(f"the model is in {place / MODEL}")
