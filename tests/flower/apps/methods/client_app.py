"""A client for every method: each message names its own."""

from flwr.clientapp import ClientApp
from shared import METHODS, SETTINGS, TASK

from fedmim.flower import client_app

APPS = {
    repr(algorithm): client_app(lambda partition, context: TASK, algorithm, SETTINGS) for algorithm in METHODS.values()
}
app = ClientApp()


def answer(message, context):
    """By the app of the message's method; a roll call names none, and any will do."""
    method = message.content["config"].get("fedmim-method", next(iter(APPS)))
    return APPS[method](message, context)


for register in (app.train(), app.query(), app.query("listen"), app.query("forget")):
    register(answer)
