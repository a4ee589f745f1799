"""A client for every method: each message names its method and settings."""

from flwr.clientapp import ClientApp
from shared import CASES, TASK

from fedmim.flower import client_app
from fedmim.flower.messages import to_be_agreed

APPS = {
    (repr(algorithm), to_be_agreed(settings)): client_app(lambda partition, context: TASK, algorithm, settings)
    for algorithm, settings in CASES.values()
}
app = ClientApp()


def answer(message, context):
    """By the app of the message's method and settings; a roll call names none, and any will do."""
    config = message.content["config"]
    named = config.get("fedmim-method"), config.get("fedmim-settings")
    return APPS.get(named, next(iter(APPS.values())))(message, context)


for register in (app.train(), app.query(), app.query("listen"), app.query("forget")):
    register(answer)
