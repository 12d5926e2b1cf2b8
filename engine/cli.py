"""The command line: `serve` an engine, or list its `faults`."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

from engine.config import DTYPES, KERNELS, LOG_FORMATS, EngineConfig
from engine.errors import ConfigError, EngineError

ECHO = "echo"

# flag -> what argparse needs besides the default, which EngineConfig knows
_FLAGS: dict[str, dict[str, Any]] = {
    "host": {"help": "address to listen on; other than loopback needs --api-key-env"},
    "port": {"type": int, "help": "port to listen on; 0 takes a free one and prints it"},
    "device": {"help": "cpu or cuda[:N]"},
    "dtype": {"choices": DTYPES, "help": "of weights and activations"},
    "threads": {"type": int, "help": "CPU threads of torch"},
    "page_size": {"type": int, "help": "tokens a page"},
    "max_total_tokens": {"type": int, "help": "capacity of the paged pools, in tokens"},
    "chunk_tokens": {"type": int, "help": "most tokens of one forward pass"},
    "max_running_requests": {"type": int, "help": "requests computed at once"},
    "max_queued_requests": {"type": int, "help": "requests that may wait; more get 503"},
    "max_model_len": {"type": int, "help": "longest context, in tokens (default: the model's)"},
    "max_request_bytes": {"type": int, "help": "largest request body; larger get 413"},
    "api_key_env": {"metavar": "NAME", "help": "environment variable that holds the API key"},
    "served_model_name": {"help": "name in the API (default: the checkpoint folder's)"},
    "kernels": {"choices": KERNELS, "help": "which implementation of the baseline ops"},
    "index_outlier": {
        "type": float,
        "metavar": "FACTOR",
        "help": "scale channel 0 of the index keys, exactly undone in the queries",
    },
    "dump_activations": {"metavar": "DIR", "help": "write one safetensors file a request"},
    "log_requests": {"action": "store_true", "help": "write a request log"},
    "log_requests_level": {
        "type": int,
        "choices": range(4),
        "help": "0 ids, 1 sampling, 2 shortened texts, 3 everything",
    },
    "log_requests_format": {"choices": LOG_FORMATS, "help": "lines as text or as JSON"},
    "log_requests_target": {"help": "stdout, a file, or an existing folder"},
    "default_thinking": {"action": "store_true", "help": "think where a request does not say"},
    "disable_prefix_cache": {"action": "store_true", "help": "compute every prompt anew"},
    "seed": {"type": int, "help": "of requests without a seed of their own"},
}
_LISTS = {
    "patches": ("--patch", "NAME[=VALUE]", "turn a patch on; repeatable"),
    "faults": ("--fault", "NAME_OR_FILE", "install a named bug; repeatable"),
}


class _Parser(argparse.ArgumentParser):
    """Argument errors as one sentence, like all others."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"engine: {message}; see python -m engine --help\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0, or 2 with one sentence on stderr, or 130."""
    arguments = _parser().parse_args(argv)
    try:
        return _serve(arguments) if arguments.command == "serve" else _faults(arguments)
    except EngineError as error:
        print(f"engine: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="python -m engine", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="serve a model over HTTP")
    serve.add_argument(
        "--model", required=True, help=f"checkpoint folder, or {ECHO!r} for the echo model"
    )
    defaults = {field.name: field.default for field in fields(EngineConfig)}
    for name, options in _FLAGS.items():
        shown = dict(options)
        if defaults[name] is not None and "action" not in shown:
            shown["help"] += f" (default: {defaults[name]})" if name != "served_model_name" else ""
        serve.add_argument(_flag(name), default=None, **shown)
    for name, (flag, metavar, text) in _LISTS.items():
        serve.add_argument(flag, dest=name, action="append", metavar=metavar, help=text)
    serve.add_argument(
        "--echo-tokens-per-s",
        type=float,
        metavar="N",
        help="pace of each request of the echo model (default: as fast as possible)",
    )
    faults = commands.add_parser("faults", help="list the faults that can be installed")
    faults.add_argument("--json", action="store_true", help="as a JSON array")
    return parser


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _config(arguments: argparse.Namespace) -> EngineConfig:
    given: dict[str, Any] = {"model": arguments.model}
    for name in (*_FLAGS, *_LISTS):
        value = getattr(arguments, name)
        if value is not None and value is not False:  # 0 is a value
            given[name] = tuple(value) if name in _LISTS else value
    given.setdefault("served_model_name", Path(arguments.model).resolve().name)
    return EngineConfig(**given)


def _api_key(config: EngineConfig) -> str | None:
    if config.api_key_env is None:
        return None
    # the key is named by a variable, so that it stands in no process list and no log
    key = os.environ.get(config.api_key_env, "")  # noqa: TID251
    if not key or not key.isascii() or not key.isprintable() or key != key.strip():
        raise ConfigError(
            f"The environment variable {config.api_key_env} (--api-key-env) holds no usable key; "
            "set it to printable ASCII text."
        )
    return key


def _serve(arguments: argparse.Namespace) -> int:
    from engine.listen import bind, serve

    config = _config(arguments)
    api_key = _api_key(config)
    tokens_per_s = arguments.echo_tokens_per_s
    if tokens_per_s is not None and (config.model != ECHO or not tokens_per_s > 0):
        raise ConfigError("--echo-tokens-per-s needs --model echo and a number above 0.")
    listener = bind(config.host, config.port, has_key=api_key is not None)
    with listener:
        serve(_engine(config, api_key, tokens_per_s), listener)
    return 0


def _engine(config: EngineConfig, api_key: str | None, tokens_per_s: float | None) -> Any:
    if config.model == ECHO:
        from engine.echo import EchoEngine

        if config.faults or config.patches:
            raise ConfigError("The echo model has no kernels and no faults; drop --patch, --fault.")
        return EchoEngine(config, tokens_per_s=tokens_per_s, api_key=api_key)
    from engine.core import Engine
    from engine.frontend import attach_frontend

    return Engine(
        config,
        front_end=lambda engine: attach_frontend(
            engine, checkpoint=config.model_path, api_key=api_key
        ),
    )


def _faults(arguments: argparse.Namespace) -> int:
    from engine.faults import list_faults

    found = list_faults()
    if arguments.json:
        print(json.dumps(found, indent=1))
    else:
        for fault in found:
            print(f"{fault['name']}: {fault['trigger']}")
    return 0
