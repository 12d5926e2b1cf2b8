"""Finds out what a server can do with a few cheap requests, none of them disruptive.

A capability counts as present when a request proved it. Abort and flush cannot be proven without
disturbing others: they are taken from the dialect, and never called here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fidelity.config.deployment_spec import CAPABILITIES
from fidelity.config.kinds import nearest
from fidelity.deployment.capabilities import Capabilities, Speed
from fidelity.deployment.proofs import Notes, prove_all
from fidelity.dialects import BY_NAME, Evidence, recognise
from fidelity.endpoint import json_shape as shape
from fidelity.endpoint.client import Client
from fidelity.endpoint.prometheus_text import pick
from fidelity.endpoint.transport import Answer
from fidelity.errors import ConfigError, EndpointError
from fidelity.records import CapabilityState

_LOOKS = ("/patches", "/props", "/server_info", "/openapi.json")
_TELLING_OWNERS = frozenset({"vllm", "sglang", "llamacpp"})
_IDENTITY_SAMPLES = 4
_LENGTH_KEYS = ("max_model_len", "context_length", "max_context_len", "n_ctx", "context_len")


async def discover(
    client: Client,
    *,
    model: str | None,
    dialect: str | None,
    expects: Sequence[str] = (),
    reasoning: str = "auto",
) -> Capabilities:
    """Ask the server what it can do, and set the client up for it.

    Sets the client's model, dialect, quirks, and what it knows about reasoning and tokenizer.

    Raises:
        EndpointError: the server cannot be reached, refuses the key, does not know the model, or
            does not answer a plain chat.
        ConfigError: no model is given, and the server lists none or several.
    """
    before = client.caps.spent.requests
    notes = Notes()
    listed, evidence = await _list_models(client, notes)
    client.server.model = _choose_model(client, model, listed)
    client.server.dialect = BY_NAME[dialect] if dialect else await _recognise(client, evidence)
    info = await _about_itself(client, notes)
    client.server.inline_think = reasoning == "inline"
    try:
        await prove_all(client, notes, look_for_inline=reasoning == "auto")
    except EndpointError as error:
        raise _with_models(error, client.server.model, listed) from error
    _undisturbed(client, notes)
    await _learn_identity(client)
    entry = next((e for e in listed if e.get("id") == client.server.model), {})
    return Capabilities(
        states=_states(notes, client, expects),
        dialect=client.server.dialect.name,
        version=client.server.version,
        max_model_len=_length(entry, info) or notes.max_model_len,
        page_size=_whole(info, "page_size"),
        models=tuple(str(e["id"]) for e in listed if "id" in e),
        speed=Speed(
            prefill_tokens_per_s=notes.prefill_tokens_per_s,
            decode_tokens_per_s=notes.decode_tokens_per_s,
        ),
        requests=client.caps.spent.requests - before,
    )


async def _list_models(client: Client, notes: Notes) -> tuple[list[dict[str, Any]], Evidence]:
    url = f"{client.transport.base_url}/models"
    answer = await client.get(url)
    if answer.status in {404, 405, 501}:
        notes.absent("models", f"GET {url} answered {answer.status}")
        return [], Evidence(server=answer.headers.get("server", ""))
    listed = await client.models()
    if listed:
        notes.present("models", f"{len(listed)} listed")
    else:
        notes.absent("models", "the list is empty")
    owner = str(listed[0].get("owned_by", "")) if listed else ""
    return listed, Evidence(owned_by=owner, server=answer.headers.get("server", ""))


def _choose_model(client: Client, model: str | None, listed: list[dict[str, Any]]) -> str:
    names = [str(entry["id"]) for entry in listed if "id" in entry]
    if model:
        return model
    if len(names) == 1:
        return names[0]
    shown = ", ".join(names[:10]) or "none"
    raise ConfigError(
        f"{client.transport.base_url} lists {len(names)} models ({shown}):"
        " name one with --fidelity-model"
    )


def _with_models(error: EndpointError, model: str, listed: list[dict[str, Any]]) -> EndpointError:
    names = [str(entry["id"]) for entry in listed if "id" in entry]
    if not names or model in names:
        return error
    shown = ", ".join(names[:10])
    return type(error)(f"{error}; the server lists {shown}, not {model!r}{nearest(model, names)}")


async def _recognise(client: Client, evidence: Evidence) -> Any:
    if evidence.owned_by in _TELLING_OWNERS:
        return recognise(evidence)
    answers: dict[str, Any] = {}
    for path in _LOOKS:
        answer = await _look(client, path)
        if answer is not None:
            answers[path] = answer
    openapi = answers.pop("/openapi.json", None)
    paths = openapi.get("paths") if isinstance(openapi, dict) else None
    return recognise(
        Evidence(
            owned_by=evidence.owned_by,
            server=evidence.server,
            paths=frozenset(paths) if isinstance(paths, dict) else frozenset(),
            answers=answers,
        )
    )


async def _look(client: Client, path: str) -> Any:
    """Return the JSON under the server's root, None when there is none."""
    answer: Answer = await client.get(f"{client.transport.root_url}{path}")
    if answer.status != 200:
        return None
    try:
        return shape.parse(answer.body)
    except shape.Malformed:
        return None


async def _about_itself(client: Client, notes: Notes) -> Mapping[str, Any]:
    """Ask for server info, version, metrics and patches; each may be missing."""
    dialect, server = client.server.dialect, client.server
    info: Mapping[str, Any] = {}
    try:
        info = await client.server_info()
    except EndpointError as error:
        notes.absent("server_info", str(error))
    else:
        server.has_server_info = bool(info)
        notes.note("server_info", present=bool(info), detail=dialect.server_info_path or "")
    if dialect.version_path:
        found = await _look(client, dialect.version_path)
        server.version = str(found.get("version", ""))[:100] if isinstance(found, dict) else ""
    elif "version" in info or "build_info" in info:
        server.version = str(info.get("version") or info.get("build_info"))[:100]
    await _metrics(client, notes)
    try:
        patches = await client.patches()
    except EndpointError as error:
        notes.absent("patches", str(error))
    else:
        has = dialect.patches_path is not None
        notes.note("patches", present=has, detail=f"{len(patches)} patches" if has else "")
    return info


async def _metrics(client: Client, notes: Notes) -> None:
    try:
        metrics = await client.metrics()
    except EndpointError as error:
        notes.absent("metrics", str(error))
        return
    client.server.has_metrics = bool(metrics)
    gauge = pick(metrics, client.server.dialect.queue_gauges)
    detail = f"{len(metrics)} metrics" if metrics else "no metrics"
    if metrics and gauge is None:
        detail += ", none of them a queue gauge that we know"
    notes.note("metrics", present=bool(metrics), detail=detail)


def _undisturbed(client: Client, notes: Notes) -> None:
    """Take abort and flush from the dialect."""
    dialect = client.server.dialect
    for name, path in (("abort", dialect.abort_path), ("flush", dialect.flush_path)):
        if path:
            notes.present(name, f"POST {path} belongs to the dialect; not called")
        else:
            notes.absent(name, f"the dialect {dialect.name!r} has no such call")


async def _learn_identity(client: Client) -> None:
    """Look several times, since several replicas may stand behind one URL."""
    if client.server.has_metrics or client.server.has_server_info:
        for _ in range(_IDENTITY_SAMPLES):
            client.epochs.learn(await client.identity())
    client.epochs.settle()


def _states(notes: Notes, client: Client, expects: Sequence[str]) -> dict[str, CapabilityState]:
    unlock = client.server.dialect.unlock
    states: dict[str, CapabilityState] = {}
    for name in CAPABILITIES:
        present, detail = notes.found.get(name, (False, "not found out"))
        states[name] = CapabilityState(
            name=name,
            present=present,
            detail=client.transport.redactor.text(detail)[:500],
            unlock="" if present else unlock.get(name, ""),
            expected=name in expects,
        )
    return states


def _length(entry: Mapping[str, Any], info: Mapping[str, Any]) -> int | None:
    generation = info.get("default_generation_settings")
    places = [entry, info, generation if isinstance(generation, dict) else {}]
    for place in places:
        for key in _LENGTH_KEYS:
            if found := _whole(place, key):
                return found
    return None


def _whole(place: Mapping[str, Any], key: str) -> int | None:
    value = place.get(key)
    is_whole = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return value if is_whole else None
