"""Statuses other than 200, each turned into one sentence: what was answered, and what to do."""

from dataclasses import dataclass

from fidelity.config.redaction import Redactor
from fidelity.endpoint import json_shape as shape
from fidelity.errors import EndpointError

BUSY = frozenset({429, 503})
_EXCERPT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What an error sentence names: the request, and where its key came from."""

    method: str
    url: str
    model: str = ""
    key_env: str | None = None


def message_of(body: bytes) -> str:
    """Return the error message inside a body: the OpenAI shape, FastAPI's, or its beginning."""
    text = body[: 1 << 16].decode(errors="replace").strip()
    try:
        fields = shape.parse(text)
    except shape.Malformed:
        return " ".join(text.split())[:_EXCERPT]
    if not isinstance(fields, dict):
        return text[:_EXCERPT]
    error = fields.get("error", fields)
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or error
    return " ".join(str(error).split())[:_EXCERPT]


def is_html(headers_type: str, body: bytes) -> bool:
    """Tell a web page from an API's answer."""
    start = body[:64].lstrip().lower()
    return "text/html" in headers_type or start.startswith((b"<!doctype", b"<html"))


def trouble(
    asked: Asked, status: int, content_type: str, body: bytes, redactor: Redactor
) -> EndpointError:
    """Return the error for a status that is no answer."""
    said = redactor.text(message_of(body))
    head = f"{asked.method} {asked.url} answered {status}"
    if is_html(content_type, body):
        return EndpointError(
            f"{head} with a web page instead of JSON ({said[:80]!r}): this is not the API;"
            " correct the base URL (it usually ends in /v1)"
        )
    return EndpointError(f"{head} ({said!r}): {_advice(asked, status, said)}")


def not_json(
    asked: Asked, content_type: str, body: bytes, why: Exception, redactor: Redactor
) -> EndpointError:
    """Return the error for a 200 whose body is not what the API documents."""
    head = f"{asked.method} {asked.url} answered 200"
    if is_html(content_type, body):
        said = redactor.text(message_of(body))[:80]
        return EndpointError(
            f"{head} with a web page instead of JSON ({said!r}): this is not the API;"
            " correct the base URL (it usually ends in /v1)"
        )
    return EndpointError(
        f"{head} with a body of another shape: {redactor.text(str(why))[:_EXCERPT]};"
        " compare the server with the OpenAI API"
    )


_ADVICE = (
    (range(300, 400), "it redirects: give the URL that it redirects to"),
    (sorted(BUSY), "it is overloaded: come back when it is idle"),
    (range(500, 600), "the server failed: look at its log"),
)


def _advice(asked: Asked, status: int, said: str) -> str:
    if status in {401, 403}:
        if asked.key_env:
            return f"the key in {asked.key_env} is refused: export the right one"
        return "the server wants a key: name its variable with --fidelity-api-key-env"
    if status == 404:
        if asked.model and "model" in said.lower():
            return f"the model {asked.model!r} is unknown there: name another by --fidelity-model"
        return "no such path there: correct the base URL (it usually ends in /v1)"
    for statuses, advice in _ADVICE:
        if status in statuses:
            return advice
    return "the server refuses this request: look at its log and at the request profile"
