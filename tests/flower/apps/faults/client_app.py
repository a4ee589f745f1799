"""A client that fails by plan."""

from flwr.app import Array, ArrayRecord
from flwr.clientapp import ClientApp
from shared import ALGORITHM, SETTINGS, TASK, await_mark, mark

from fedmim.flower import client_app

own = client_app(lambda partition, context: TASK, ALGORITHM, SETTINGS)
app = ClientApp()
app.query()(own)
app.query("forget")(own)


@app.train()
def train(message, context):
    """Train, or fail."""
    here = context.node_config["partition-id"], message.content["config"]["server-round"]
    if here == (0, 2) or here[1] == 5:
        raise RuntimeError(f"the camera of client {here[0]} is covered")
    if here == (1, 3):
        mark(context, "client-1-trains")
        await_mark(context, "never")  # its SuperNode is killed meanwhile
    if here == (2, 3):
        await_mark(context, "round-3-ended")
    reply = own(message, context)
    if here == (1, 2):
        arrays = {name: array.numpy() for name, array in reply.content["arrays"].items()}
        next(iter(arrays.values())).flat[3] = float("nan")
        reply.content["arrays"] = ArrayRecord({name: Array(value) for name, value in arrays.items()})
    return reply
