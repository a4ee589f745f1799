"""Asks for nodes before there are any, then trains through all faults, and ends with one that ends the run."""

import json
import time
from pathlib import Path

from flwr.serverapp import ServerApp
from safetensors.torch import save_file
from shared import ALGORITHM, CLIENTS, SETTINGS, TASK, mark

from fedmim.errors import UserError
from fedmim.flower import FlowerStrategy

app = ServerApp()


class Impatient:
    """The grid, but in the third round its timeout is short: twice as long as the rounds before took."""

    def __init__(self, grid):
        self.grid, self.longest = grid, 0.0

    def __getattr__(self, name):
        return getattr(self.grid, name)

    def send_and_receive(self, messages, *, timeout):
        messages = list(messages)
        if messages and messages[0].content["config"].get("server-round") == 3:
            timeout = 2 * self.longest
        begin = time.monotonic()
        replies = list(self.grid.send_and_receive(messages, timeout=timeout))
        self.longest = max(self.longest, time.monotonic() - begin)
        return replies


@app.main()
def main(grid, context):
    """Run it, and write what happened."""
    out = Path(str(context.run_config["out"]))
    try:
        FlowerStrategy(ALGORITHM, SETTINGS, TASK.model, clients=CLIENTS, wait=1.0).start(grid)
    except UserError as error:
        (out / "too-few.txt").write_text(str(error))
    mark(context, "nodes-wanted")
    strategy = FlowerStrategy(ALGORITHM, SETTINGS, TASK.model, clients=CLIENTS, wait=180.0, folder=out / "run")
    models = {}

    def see(round, arrays):
        models.update({f"{round}/{name}": value for name, value in arrays.to_torch_state_dict().items()})
        if round == 3:
            mark(context, "round-3-ended")
            before, end = set(strategy.federation._client_of), time.monotonic() + 120
            while not set(grid.get_node_ids()) - before:  # client 1 comes back
                assert time.monotonic() < end
                time.sleep(0.5)

    try:
        strategy.start(Impatient(grid), timeout=180.0, evaluate_fn=see)
    finally:
        save_file(models, out / "models.safetensors")
        control = {"control": strategy.server.state.slots["control"]}
        save_file(control, out / "control.safetensors")
        facts = {"failures": strategy.failures, "seconds": [record.seconds for record in strategy.history]}
        (out / "facts.json").write_text(
            json.dumps(facts | {"places": strategy.server.clients.places, "run": strategy.server.facts["run"]})
        )
