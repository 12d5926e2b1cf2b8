"""Raw asynchronous client of one OpenAI-compatible server: no SDK that normalises payloads.

Every method raises EndpointError on infrastructure trouble, Overloaded when the cap on waiting is
spent, and TrafficRefused before anything is sent when a class or a cap forbids it.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

from fidelity.config.profile import RequestProfile
from fidelity.dialects import TokenizeQuery
from fidelity.endpoint import json_shape as shape
from fidelity.endpoint.caps import PROMPT_LOGPROBS_TOKENS, Caps
from fidelity.endpoint.exchange import Exchanger
from fidelity.endpoint.outgoing import Outgoing, Refused
from fidelity.endpoint.pacing import Pacer, Waiting
from fidelity.endpoint.queue_watch import QueueWatch
from fidelity.endpoint.replies import RawReply, Reply, Tokenized
from fidelity.endpoint.request_body import AskOptions, Question, build, new_request_id
from fidelity.endpoint.server_calls import Server, ServerCalls, as_json
from fidelity.endpoint.timeouts import Timeouts
from fidelity.endpoint.transport import Transport
from fidelity.errors import CapabilityMissing, EndpointError, TrafficRefused
from fidelity.words import Traffic


class Client(ServerCalls):
    """Speaks to one server within the caps of one run. For one event loop."""

    def __init__(
        self,
        transport: Transport,
        server: Server,
        *,
        caps: Caps,
        pacer: Pacer,
        timeouts: Timeouts | None = None,
        profile: RequestProfile | None = None,
        replica_headers: Sequence[str] = (),
    ) -> None:
        """Send nothing yet."""
        super().__init__(transport, server, caps=caps, pacer=pacer, timeouts=timeouts)
        self.profile = profile or RequestProfile()
        self.queue_watch = QueueWatch(self._read_queue, pacer)
        self._exchanger = Exchanger(
            transport, self.timeouts, tuple(replica_headers), self._aborted_ids, self.abort
        )

    # ---- generation

    async def chat(
        self, messages: Sequence[Mapping[str, Any]], **options: Unpack[AskOptions]
    ) -> Reply:
        """Ask /chat/completions; options as in `Question`."""
        return await self.ask(Question(prompt=messages, chat=True, **options))

    async def complete(self, prompt: str | Sequence[int], **options: Unpack[AskOptions]) -> Reply:
        """Ask /completions with a text or token ids; options as in `Question`."""
        return await self.ask(Question(prompt=prompt, chat=False, **options))

    async def ask(self, question: Question) -> Reply:
        """Send one question, waiting out 429 and 503 within the cap; it is never sent twice else.

        Raises:
            EndpointError: the server did not answer as a server of its kind does.
            Overloaded: 429 or 503 until the cap on waiting was spent.
            TrafficRefused: the class is not allowed or a cap is spent; nothing was sent.
            ConfigError: the question cannot be asked in this dialect.
        """
        self.caps.check_traffic(question.traffic)
        if question.abort_by_call:
            self._check_abort()
        request_id = question.request_id or new_request_id()
        outgoing = self._outgoing(question, request_id)
        waiting = Waiting()
        await self._before(question.traffic)
        while True:
            outcome = await self._send_once(outgoing, question)
            if isinstance(outcome, Reply):
                return replace(
                    outcome,
                    epoch=self.epochs.epoch,
                    attempts=waiting.refusals + 1,
                    waited_s=waiting.waited_s,
                )
            await self.pacer.back_off(
                waiting, asked_s=outcome.retry_after_s, seen=self._asked(outgoing, outcome)
            )

    @property
    def given_text_limit(self) -> int:
        """Most tokens of a text whose logprobs this server may be asked for."""
        spans = self.server.dialect.prompt_logprobs_start_field is not None
        return self.caps.given_text_tokens(spans=spans)

    def _outgoing(self, question: Question, request_id: str) -> Outgoing:
        server = self.server
        body = build(
            question,
            model=server.model,
            request_id=request_id,
            profile=self.profile,
            dialect=server.dialect,
            quirks=server.quirks,
        )
        turns = len(question.prompt) if question.chat else 1
        prompt_tokens = self.caps.estimate(len(body), turns)
        if not question.chat and not isinstance(question.prompt, str):
            prompt_tokens = len(question.prompt)  # given as ids, they need no estimate
        if question.scores_prompt and prompt_tokens > self.given_text_limit:
            allow = " (--fidelity-allow load raises it)"
            raise TrafficRefused(
                f"logprobs of a prompt of up to {prompt_tokens} tokens pass the bound of"
                f" {self.given_text_limit}: they would cost the server gigabytes"
                + (allow if self.given_text_limit < PROMPT_LOGPROBS_TOKENS else "")
            )
        return Outgoing(
            url=f"{self.transport.base_url}{question.path}",
            body=body,
            request_id=request_id,
            prompt_tokens=prompt_tokens,
            model=server.model,
            key_env=server.key_env,
            inline_think=server.inline_think,
        )

    async def _send_once(self, outgoing: Outgoing, question: Question) -> Reply | Refused:
        tokens = outgoing.prompt_tokens + question.max_tokens
        async with self.pacer.slot(question.traffic):
            await self.caps.admit(tokens)
            self._sent_ids.add(outgoing.request_id)
            reply: Reply | Refused | None = None
            try:
                reply = await self._exchanger.run(outgoing, question)
            except EndpointError as error:
                self._identity_due = 0.0  # whoever answers next may be a restarted server
                raise self._with_log(error) from error
            finally:
                self._settle(tokens, reply, len(outgoing.body))
        if isinstance(reply, Reply) and reply.status == 200:
            self.pacer.succeeded()
        return reply

    def _settle(self, tokens: int, reply: Reply | Refused | None, body_bytes: int) -> None:
        if isinstance(reply, Refused):
            self.caps.release(tokens)
        elif reply is None:
            self.caps.settle(tokens, prompt=None, completion=None)
        else:
            self.caps.settle(
                tokens,
                prompt=reply.prompt_tokens,
                completion=reply.completion_tokens,
                body_bytes=body_bytes,
            )

    def _asked(self, outgoing: Outgoing, refused: Refused) -> str:
        return f"POST {outgoing.url} answered {refused.status} ({refused.said!r})"

    # ---- tokens

    async def tokenize(
        self,
        messages: Sequence[Mapping[str, Any]] | None = None,
        prompt: str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        thinking: bool | None = None,
    ) -> Tokenized:
        """Count the tokens of messages (as `chat` would send them) or of a plain text.

        Raises:
            CapabilityMissing: no tokenizer endpoint in this dialect, or one that was found lying.
        """
        dialect = self.server.dialect
        if dialect.tokenize_path is None:
            raise CapabilityMissing(f"a server of dialect {dialect.name!r} has no tokenizer")
        if self.server.tokenizer_distrust:
            raise CapabilityMissing(self.server.tokenizer_distrust)
        mode = self.profile.thinking if thinking is None else thinking
        query = TokenizeQuery(
            model=self.server.model,
            messages=None if messages is None else self.profile.messages(messages),
            prompt=prompt,
            tools=None if messages is None else self.profile.tools_for(tools),
            template_kwargs=dialect.thinking(mode).get("chat_template_kwargs", {}),
        )
        try:
            return await dialect.tokenize(query, self._post)
        except shape.Malformed as error:
            raise self._malformed("POST", dialect.tokenize_path, error) from error

    async def detokenize(self, tokens: Sequence[int]) -> str:
        """Return the text of token ids."""
        dialect = self.server.dialect
        if dialect.detokenize_path is None:
            raise CapabilityMissing(f"a server of dialect {dialect.name!r} has no detokenizer")
        try:
            return await dialect.detokenize(self.server.model, tokens, self._post)
        except shape.Malformed as error:
            raise self._malformed("POST", dialect.detokenize_path, error) from error

    # ---- plumbing

    async def raw(
        self,
        method: str,
        path: str,
        content: bytes | Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        traffic: Traffic = Traffic.PASSIVE,
        tokens: int = 0,
        timeout_s: float | None = None,
    ) -> RawReply:
        """Send what the caller wrote, and return what came back, whatever its status.

        Args:
            method: HTTP method.
            path: below the base URL, like "/chat/completions"; "//x" is below the root.
            content: bytes as they are, or a mapping that is written as JSON.
            headers: on top of the profile's.
            traffic: class of the request.
            tokens: what the request may cost, for the cap.
            timeout_s: for the whole answer.
        """
        self.caps.check_traffic(traffic)
        self._refuse_control(path)
        body = as_json(content) if isinstance(content, Mapping) else content
        request_id = new_request_id()
        sent = {"Content-Type": "application/json", "X-Request-Id": request_id, **(headers or {})}
        root = self.transport.root_url if path.startswith("//") else self.transport.base_url
        url = root + (path[1:] if path.startswith("//") else path)
        limit = timeout_s or self.timeouts.total_s(len(body or b""), 64)
        async with self.pacer.slot(traffic):
            await self.caps.admit(tokens)
            try:
                answer = await self.transport.fetch(
                    method, url, content=body, headers=sent, timeout_s=limit
                )
            except EndpointError as error:
                raise self._with_log(error) from error
            finally:
                self.caps.settle(tokens, prompt=None, completion=None)
        return RawReply(
            status=answer.status, headers=answer.headers, body=answer.body, request_id=request_id
        )

    def _refuse_control(self, path: str) -> None:
        """Keep flush and abort out of `raw`: they have methods that check what is allowed."""
        dialect = self.server.dialect
        control = [p.strip("/") for p in (dialect.flush_path, dialect.abort_path) if p]
        control += ["flush_cache", "abort_request", "reset_prefix_cache"]
        if path.strip("/").split("?")[0].split("/")[-1] in control:
            raise TrafficRefused(f"{path} is reached by flush_cache() and abort() only")

    async def _before(self, traffic: Traffic) -> None:
        """Ask who answers, now and then, and let others go first on a shared server."""
        if traffic is not Traffic.PASSIVE:
            return
        knows_identity = self.server.has_metrics or self.server.has_server_info
        if knows_identity and self.epochs.known and time.monotonic() >= self._identity_due:
            await self.check_epoch()
        if self.server.shared and self.server.has_metrics:
            await self.queue_watch.settle()
