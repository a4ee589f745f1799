"""Asks for nodes before there are any, then trains through all faults, and ends with one that ends the run."""

import json
import time
from pathlib import Path

from flwr.app import Error, Message
from flwr.serverapp import ServerApp
from safetensors.torch import save_file
from shared import ALGORITHM, CLIENTS, SETTINGS, TASK, await_mark, mark

from fedmim.errors import UserError
from fedmim.flower import FlowerStrategy

app = ServerApp()
WHAT = {"algorithm": ALGORITHM, "settings": SETTINGS, "model": TASK.model, "clients": CLIENTS}


class Impatient:
    """The grid, but in the third round it waits for client 0 alone, and until client 1 has been killed."""

    def __init__(self, grid, context):
        self.grid, self.context, self.late = grid, context, {}

    def __getattr__(self, name):
        return getattr(self.grid, name)

    def push_messages(self, messages):
        ids = list(self.grid.push_messages(messages))
        for message, message_id in zip(messages, ids, strict=True):
            config = message.content["config"]
            if config.get("server-round") == 3 and config["fedmim-client"] > 0:
                self.late[message_id] = message
        return ids

    def pull_messages(self, message_ids):
        (message_id,) = message_ids
        if message_id not in self.late:
            return self.grid.pull_messages(message_ids)
        await_mark(self.context, "client-1-killed")
        return [Message(Error(3, "no reply within 180 s"), reply_to=self.late[message_id])]


@app.main()
def main(grid, context):
    """Run it, and write what happened."""
    out = Path(str(context.run_config["out"]))
    try:
        FlowerStrategy(**WHAT, wait=1.0).start(grid)
    except UserError as error:
        (out / "too-few.txt").write_text(str(error))
    mark(context, "nodes-wanted")
    strategy = FlowerStrategy(**WHAT, wait=180.0, folder=out / "run")
    models, before = {}, set()

    def see(round, arrays):
        models.update({f"{round}/{name}": value for name, value in arrays.to_torch_state_dict().items()})
        if round == 1:
            before.update(grid.get_node_ids())
        if round == 3:
            mark(context, "round-3-ended")
            end = time.monotonic() + 120
            while not set(grid.get_node_ids()) - before:  # client 1 comes back
                assert time.monotonic() < end
                time.sleep(0.5)

    try:
        strategy.start(Impatient(grid, context), timeout=180.0, evaluate_fn=see)
    finally:
        save_file(models, out / "models.safetensors")
        control = {"control": strategy.server.state.slots["control"]}
        save_file(control, out / "control.safetensors")
        facts = {"failures": strategy.failures, "seconds": [record.seconds for record in strategy.history]}
        (out / "facts.json").write_text(
            json.dumps(facts | {"places": strategy.server.clients.places, "run": strategy.server.facts["run"]})
        )
