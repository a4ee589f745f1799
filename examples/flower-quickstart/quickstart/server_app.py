"""The server."""

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp

from fedmim import FedMIM
from fedmim.flower import FlowerStrategy
from quickstart.task import Net

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the rounds, and save the model."""
    num_rounds, lr = context.run_config["num-server-rounds"], context.run_config["learning-rate"]
    global_model = Net()
    arrays = ArrayRecord(global_model.state_dict())
    strategy = FlowerStrategy(FedMIM(), global_model, fraction_evaluate=context.run_config["fraction-evaluate"])
    result = strategy.start(
        grid=grid,
        initial_arrays=arrays,
        train_config=ConfigRecord({"lr": lr}),
        num_rounds=num_rounds,
    )
    torch.save(result.arrays.to_torch_state_dict(), "final_model.pt")
