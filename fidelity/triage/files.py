"""The smallest failing chat as files: to send again by hand, and to triage again."""

import json
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from fidelity.config.redaction import REDACTED, is_secret_name
from fidelity.config.settings import Settings
from fidelity.deployment.deployment import Deployment
from fidelity.endpoint.request_body import Question, build
from fidelity.errors import JournalError
from fidelity.triage.conversation import SAMPLING, Conversation
from fidelity.triage.desk import Mode
from fidelity.triage.judge import Judge

SCRIPT = "smallest.json"
BODY = "smallest.request.json"
CURL = "smallest.sh"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Files of a triage; `curl` is the command that the shell script holds."""

    script: Path
    body: Path
    shell: Path
    curl: str


def write_files(
    folder: Path,
    chat: Conversation,
    judge: Judge,
    mode: Mode,
    *,
    deployment: Deployment,
    settings: Settings,
) -> Written:
    """Write the chat, its request body and a curl command; no key is written, only its variable.

    Raises:
        JournalError: the folder cannot be written.
    """
    script = replace(chat, expect=judge.expect, reject=judge.reject).as_request()
    if mode is Mode.GREEDY:
        script = {k: v for k, v in script.items() if k not in SAMPLING} | {"temperature": 0}
    url = f"{deployment.base_url}/chat/completions"
    words = ["curl", "-sSN" if chat.stream else "-sS", url, "-H", "Content-Type: application/json"]
    profile = settings.target.request
    for header, value in profile.headers.items():
        words += ["-H", f"{header}: {REDACTED if is_secret_name(header) else value}"]
    shown = [shlex.quote(settings.redactor.text(word)) for word in words]
    if settings.api_key_env:
        shown += ["-H", f'"Authorization: Bearer ${settings.api_key_env}"']
    for header, variable in profile.headers_env.items():
        shown += ["-H", f'"{header}: ${variable}"']
    curl = " ".join([*shown, "--data-binary", f"@{BODY}"])
    written = Written(script=folder / SCRIPT, body=folder / BODY, shell=folder / CURL, curl=curl)
    try:
        written.script.write_text(_json(settings.redactor.json(script)), encoding="utf-8")
        body = settings.redactor.json(json.loads(_body(chat, mode, deployment)))
        written.body.write_text(json.dumps(body, ensure_ascii=False), encoding="utf-8")
        written.shell.write_text(
            f'#!/bin/sh\n# the smallest chat that fails; run it where it lies\ncd "$(dirname "$0")"'
            f" && {curl}\n",
            encoding="utf-8",
        )
        written.shell.chmod(0o755)
    except OSError as error:
        raise JournalError(f"cannot write to {folder}: {error.strerror}") from error
    return written


def _body(chat: Conversation, mode: Mode, deployment: Deployment) -> bytes:
    params = {k: v for k, v in chat.params.items() if mode is Mode.SAMPLED or k not in SAMPLING}
    temperature = params.pop("temperature", None)
    question = Question(
        prompt=chat.messages,
        chat=True,
        max_tokens=chat.max_tokens,
        tools=chat.tools,
        temperature=0.0 if mode is Mode.GREEDY else temperature,
        stream=chat.stream,
        stop=params.pop("stop", None),
        extra=params,
    )
    server = deployment.client.server
    dialect = replace(server.dialect, request_id_field=None)
    return build(
        question,
        model=server.model,
        request_id="",
        profile=deployment.profile,
        dialect=dialect,
        quirks=server.quirks,
    )


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"
