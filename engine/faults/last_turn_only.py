"""The server renders only the last user turn: fluent answers, and no memory of the conversation."""

from collections.abc import Sequence
from typing import Any

NAME = "last_turn_only"
KIND = "template"
RUNG = "structural"
REPORT = "https://github.com/Blaizzy/mlx-vlm/issues/1046"
TRIGGER = "any request with more than one user turn"
PATCH = None
SUITES = {
    "test_multi_turn_recall",
    "test_continuation",
    "test_abort_then_followup",
    "test_no_cross_conversation_leak",
    "test_plumbing",
}


def install(engine: Any) -> None:
    """Wrap the encoder's `render`, which `encode` and `/tokenize` go through."""
    render = engine.encoder.render

    def render_last_turn(messages: Sequence[Any], *args: Any, **options: Any) -> Any:
        return render(last_turn(messages), *args, **options)

    engine.encoder.render = render_last_turn


def last_turn(messages: Sequence[Any]) -> list[Any]:
    """Return system messages, and everything from the last user message on."""
    users = [at for at, message in enumerate(messages) if message["role"] == "user"]
    if not users:
        return list(messages)
    system = [message for message in messages[: users[-1]] if message["role"] == "system"]
    return [*system, *messages[users[-1] :]]
