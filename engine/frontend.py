"""Hangs the text parts onto an engine: tokenizer, encoder, parsers, log, metrics, server."""

from pathlib import Path
from typing import Any

from engine.encoding import ChatEncoder
from engine.encoding_spec import load_encoding_spec
from engine.errors import CheckpointError
from engine.metrics import Metrics
from engine.parsers import Parsers
from engine.request_log import RequestLog
from engine.server import Server
from engine.tokenizer import Tokenizer


def attach_frontend(engine: Any, *, checkpoint: Path, api_key: str | None = None) -> None:
    """Build the front end of `engine` from its config and a checkpoint's text files.

    Raises:
        CheckpointError: tokenizer.json or encoding.json is missing, damaged, or they disagree.
        ConfigError: the request log cannot be written.
    """
    engine.tokenizer = Tokenizer(checkpoint)
    spec = load_encoding_spec(checkpoint)
    for marker in spec.turn_markers:
        if engine.tokenizer.token_id(marker) is None:
            raise CheckpointError(
                f"{checkpoint}: encoding.json names {marker!r}, which tokenizer.json lacks."
            )
    engine.encoder = ChatEncoder(spec, engine.tokenizer)
    engine.parsers = Parsers(spec, engine.tokenizer)
    engine.request_log = RequestLog(engine.config)
    engine.metrics = Metrics(
        lambda: engine.scheduler.gauges(),  # noqa: PLW0108 - looked up at each scrape
        engine.config.served_model_name,
    )
    engine.server = Server(engine, api_key=api_key)
