"""Every table of fidelity.toml, key by key: the one place that says what may be written there.

Whole although long: it is data, and its tables hold each other.
"""

import json
from collections.abc import Mapping
from typing import Any

from fidelity.config.deployment_spec import CAPABILITIES, REASONING_STYLES, SIGNALS
from fidelity.config.keys import Key, Keys, Shape
from fidelity.config.kinds import (
    BOOLEAN,
    ENV_NAME,
    ENV_TEXT,
    HEADER,
    HEADER_NAME,
    PATH,
    TEXT,
    URL,
    VARIABLE,
    Kind,
    Unreadable,
    integer,
    number,
    one_of,
    seconds,
)
from fidelity.config.options import OPTIONS, Option
from fidelity.config.patch_spec import PHASES
from fidelity.config.profile import SAMPLING_KEYS
from fidelity.words import Budget


def _read_number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unreadable("not a number")
    if value != value:  # noqa: PLR0124 - NaN, which is reached by nothing
        raise Unreadable("not a number")
    return value


def _read_share(value: object) -> float:
    number = _read_number(value)
    if not 0 <= number <= 1:
        raise Unreadable("out of range")
    return number


def _read_tool(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not isinstance(value.get("function"), dict):
        raise Unreadable("no function in it")
    return value


def _read_url_path(value: object) -> str:
    if not isinstance(value, str) or not value.startswith("/"):
        raise Unreadable("no leading slash")
    return value


def _read_plain(value: object) -> str | float | bool:
    if not isinstance(value, str | int | float):
        raise Unreadable("neither text, number nor true or false")
    return value


_NUMBER = Kind("a number", _read_number, {"type": "number"})
_SHARE = Kind("a number from 0 to 1", _read_share, {"type": "number", "minimum": 0, "maximum": 1})
_TOOL = Kind(
    'an OpenAI tool, {type = "function", function = {…}}',
    _read_tool,
    {"type": "object", "required": ["function"]},
)
_URL_PATH = Kind(
    "a path under the server's root, like /health",
    _read_url_path,
    {"type": "string", "pattern": "^/"},
)
_PLAIN = Kind(
    "a text, a number, true or false", _read_plain, {"type": ["string", "number", "boolean"]}
)


def _read_json(value: object) -> object:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        raise Unreadable("JSON has no such value") from None
    return value


_ANY = Kind("anything that JSON has", _read_json)
_SET_BY_QUESTIONS = frozenset(
    {
        *("messages", "prompt", "model", "n", "stream", "stream_options"),
        *("max_completion_tokens", "max_tokens"),
    }
)


def _read_field(value: object) -> str:
    name = str(value)
    if name in _SET_BY_QUESTIONS:
        raise Unreadable("the run sets it itself")
    if name in SAMPLING_KEYS or name in {"tools", "reasoning_effort"}:
        raise Unreadable("it has a key of its own in [request]")
    return name


_FIELD = Kind("a field that no request of a run sets", _read_field)


REQUEST = Keys(
    title="[request], [deployments.NAME.request]",
    help=(
        "What every request of a run carries beside the question: the profile that your users"
        " have. A deployment's own table lies on top of the file's"
    ),
    keys=(
        *(
            Key(name=name, kind=kind, help=help_, example=example)
            for name, kind, help_, example in (
                (
                    "temperature",
                    number(0, 100),
                    "sampling temperature of probes that do not need greedy",
                    "0.6",
                ),
                ("top_p", number(0, 1, above=True), "nucleus sampling", "0.95"),
                (
                    "top_k",
                    number(0, 2**31 - 1, whole=True, odd=-1),
                    "sample from so many tokens",
                    "40",
                ),
                ("min_p", _SHARE, "drop tokens below this share of the best one", "0.05"),
                ("frequency_penalty", number(-2, 2), "as the OpenAI API has it", "0.0"),
                ("presence_penalty", number(-2, 2), "as the OpenAI API has it", "0.0"),
                (
                    "repetition_penalty",
                    number(0, 100, above=True),
                    "as SGLang and vLLM have it",
                    "1.0",
                ),
            )
        ),
        Key(
            name="thinking",
            kind=BOOLEAN,
            help="reasoning on or off, in the server's own way; absent leaves it to the server",
            example="true",
        ),
        Key(name="reasoning_effort", kind=TEXT, help="sent as it is", example='"high"'),
        Key(
            name="extra_body",
            kind=_ANY,
            shape=Shape.MAP,
            no_secrets=True,
            name_kind=_FIELD,
            help="further fields of the request body, no secrets",
            example='{ chat_template_kwargs = { lang = "en" } }',
        ),
        Key(
            name="headers",
            kind=HEADER,
            shape=Shape.MAP,
            no_secrets=True,
            name_kind=HEADER_NAME,
            help="further headers, no secrets",
            example='{ X-Team = "blue" }',
        ),
        Key(
            name="headers_env",
            kind=ENV_NAME,
            shape=Shape.MAP,
            name_kind=HEADER_NAME,
            help="headers whose value an environment variable holds",
            example='{ X-Gateway-Key = "GATEWAY_KEY" }',
        ),
        Key(name="ca", kind=PATH, help="certificate authorities to trust", example='"ca.pem"'),
        Key(name="client_cert", kind=PATH, help="client certificate", example='"client.pem"'),
        Key(
            name="client_key",
            kind=PATH,
            help="its key, when it lies in a file of its own",
            example='"client.key"',
        ),
        Key(
            name="proxy",
            kind=URL,
            help="HTTP proxy; the environment's proxies are not used",
            example='"http://proxy:3128"',
        ),
        Key(
            name="system_prompt",
            kind=TEXT,
            help="put before messages that have no system turn of their own",
            example='"You are a careful assistant."',
        ),
        Key(
            name="tools",
            kind=_TOOL,
            shape=Shape.LIST,
            help="sent with every chat that brings no tools of its own",
            example='[{ type = "function", function = { name = "read_file" } }]',
        ),
    ),
)

_SERVER_KEYS = (
    Key(
        name="launch",
        kind=TEXT,
        shape=Shape.LIST,
        no_secrets=True,
        help=(
            "command as an argument list, no shell. Filled in: {python} {port} {bootstrap_port},"
            " and {ROLE.url} {ROLE.port} {ROLE.host} {ROLE.bootstrap_port} of another role"
        ),
        example='["{python}", "-m", "engine", "serve", "--port", "{port}"]',
    ),
    Key(
        name="env",
        kind=ENV_TEXT,
        shape=Shape.MAP,
        no_secrets=True,
        name_kind=VARIABLE,
        help="further environment of the commands, filled in alike; secrets are inherited",
        example='{ OMP_NUM_THREADS = "1" }',
    ),
    Key(
        name="readiness_path",
        kind=_URL_PATH,
        default="/health",
        help="GET under the server's root that answers 200 when it is ready",
        example='"/health"',
    ),
    Key(
        name="readiness_timeout_s",
        kind=seconds(0.1, 86_400),
        default=120.0,
        help="how long that may take",
        example="600",
    ),
    Key(
        name="teardown",
        kind=TEXT,
        shape=Shape.LIST,
        no_secrets=True,
        help=(
            "command that ends the server, for one that does not die with its command (a container,"
            " another machine); it runs also when the harness was killed"
        ),
        example='["docker", "stop", "vllm"]',
    ),
    Key(
        name="teardown_signal",
        kind=one_of(SIGNALS),
        default="TERM",
        help="what the command's process group is sent first",
        example='"INT"',
    ),
    Key(
        name="teardown_grace_s",
        kind=seconds(0, 3_600),
        default=10.0,
        help="from then to SIGKILL; a teardown command may take as long",
        example="30",
    ),
    Key(
        name="restart",
        kind=TEXT,
        shape=Shape.LIST,
        no_secrets=True,
        help=(
            "command that restarts a server which the harness did not launch, for `Servers.restart`"
            " of your own tests; no suite of the product restarts anything"
        ),
        example='["ssh", "gpu7", "systemctl", "restart", "decode"]',
    ),
    Key(
        name="log",
        kind=PATH,
        help="log file that the server writes itself; `active_when` reads it",
        example='"/var/log/sglang/decode.log"',
    ),
    Key(name="host", kind=TEXT, help="machine that it runs on, for messages", example='"gpu7"'),
    Key(
        name="manual",
        kind=BOOLEAN,
        default=False,
        help="a person starts it: the run says so, and waits for readiness_timeout_s",
        example="true",
    ),
    Key(
        name="patches",
        kind=TEXT,
        shape=Shape.LIST,
        help=(
            "[[patch]] entries that are on, NAME or NAME=VALUE; at launch their `on` is applied,"
            " and the `off` of all others. Absent: the command stays as it is"
        ),
        example='["mhc_bf16", "index_keys=fp8"]',
    ),
)

ROLE = Keys(
    title="[deployments.NAME.roles.ROLE]",
    help=(
        "One process of a deployment that has several: router, prefill, decode; numbered where"
        " there are more of a kind, decode-2. They start in the order of the file, each ready"
        " before the next. The router's address is what the suites ask"
    ),
    keys=(
        Key(
            name="url",
            kind=URL,
            help="where it answers (URL/v1), when its command chooses no {port} or it has none",
            example='"http://gpu7:30001/v1"',
        ),
        *_SERVER_KEYS,
    ),
)

_MORE = {
    "model": '"deepseek-v4-flash"',
    "allow": '["load", "disruptive"]',
    "api_key_env": '"GATEWAY_KEY"',
    "dialect": '"sglang"',
    "concurrency": "4",
    "load_concurrency": "32",
    "max_requests": "20000",
    "max_tokens": "2_000_000",
    "max_wait_s": "120",
    "max_time_s": "1800",
    "timeout_s": "60",
    "replica_header": '["x-replica"]',
    "base_url": '"http://127.0.0.1:30000/v1"',
    "deployment": '"embedded"',
    "budget": '"quick"',
    "run_dir": '"runs/today"',
    "seed": "0",
    "golden": '"stock"',
    "patch": '["index_keys=int4"]',
    "checkpoint": '"/models/DeepSeek-V4-Flash"',
    "inputs": '"dumps"',
    "launch_arg": '["--max-queued-requests=32"]',
}
"""Examples of options; one without is shown with a value of its kind."""


def _option_key(option: Option) -> Key:
    example = _MORE.get(option.dest) or _example_of(option.kind)
    return Key(
        name=option.dest,
        kind=option.kind,
        help=option.help,
        example=example if not option.split or example.startswith("[") else f"[{example}]",
        shape=Shape.LIST if option.split else Shape.VALUE,
        no_secrets=option.dest == "launch_arg",
    )


def _example_of(kind: Kind) -> str:
    if words := kind.schema.get("enum"):
        return f'"{words[0]}"'
    number = kind.schema.get("type") in {"integer", "number"}
    return str(kind.schema.get("minimum", 0)) if number else '"NAME"'


DEPLOYMENT = Keys(
    title="[deployments.NAME]",
    help=(
        "A server to measure: its address, or the command that launches it, or its roles. Flags and"
        " environment beat what stands here, and this beats [budgets] and [harness]"
    ),
    keys=(
        Key(
            name="base_url",
            kind=URL,
            help=(
                "where it answers (URL/v1); beside `launch`, the address at which the command"
                " serves by itself"
            ),
            example='"http://gpu7:30000/v1"',
        ),
        *_SERVER_KEYS,
        Key(
            name="roles",
            shape=Shape.NAMED,
            of=ROLE,
            help="its processes, in place of `launch` and `base_url`",
        ),
        Key(
            name="expects",
            kind=one_of(CAPABILITIES),
            shape=Shape.LIST,
            help="capabilities that it promises; an absent or unproven one is an error",
            example='["prefix_cache", "logprobs"]',
        ),
        Key(
            name="required",
            kind=TEXT,
            shape=Shape.LIST,
            help=(
                "claims that must be measured, as patterns of their ids; of those that a run"
                " collects, one that is not applicable counts as a broken promise, and a pattern"
                " that is no claim's is refused"
            ),
            example='["needle_sweep/*"]',
        ),
        Key(
            name="reasoning",
            kind=one_of(REASONING_STYLES),
            default="auto",
            help="where reasoning stands: in a field, inline between <think> marks, or found out",
            example='"inline"',
        ),
        Key(
            name="encoding",
            kind=TEXT,
            help=(
                "chat encoding of its model: a name with golden vectors, or the path of a file of"
                " them; the rendered prompt is then held against them"
            ),
            example='"deepseek_v4_nano"',
        ),
        Key(name="request", shape=Shape.TABLE, of=REQUEST, help="its own request profile"),
        *(_option_key(option) for option in OPTIONS if option.per_deployment),
    ),
)

TOGGLE = Keys(
    title="[patch.on], [patch.off]",
    help="What a launch command gets to switch the patch; {value} is the VALUE of NAME=VALUE",
    keys=(
        Key(
            name="flags",
            kind=TEXT,
            shape=Shape.LIST,
            no_secrets=True,
            help="further arguments, after the command's own",
            example='["--patch", "mhc_bf16"]',
        ),
        Key(
            name="env",
            kind=ENV_TEXT,
            shape=Shape.MAP,
            no_secrets=True,
            name_kind=VARIABLE,
            help="environment",
            example='{ SGLANG_OPT_USE_TOPK_V2 = "1" }',
        ),
    ),
)

CONDITION = Keys(
    title="[patch.active_when]",
    help=(
        "What proves that the patch is live, since a flag's name does not say which path runs. One"
        " of `patches`, `server_info`, `metric`, `log`"
    ),
    keys=(
        Key(
            name="patches",
            kind=TEXT,
            help="name in the server's list of patches: it must be on, and must have run",
            example='"mhc_bf16"',
        ),
        Key(
            name="server_info",
            kind=TEXT,
            help="dotted path into the server's info; without `equals` any true value will do",
            example='"internal_states.0.use_topk_v2"',
        ),
        Key(
            name="metric",
            kind=TEXT,
            help="Prometheus metric; without `equals` or `at_least` anything above 0 will do",
            example='"sglang:splitk_decode_calls_total"',
        ),
        Key(
            name="log",
            kind=TEXT,
            help="regular expression that a line of the server's log matches",
            example='"using split-K decode"',
        ),
        Key(name="equals", kind=_PLAIN, help="value that must be seen", example="true"),
        Key(name="at_least", kind=_NUMBER, help="number that must be reached", example="1"),
        Key(
            name="role",
            kind=TEXT,
            default="",
            help="whose server is asked; otherwise the role that has the patch, or the deployment",
            example='"decode"',
        ),
    ),
)

PATCH = Keys(
    title="[[patch]]",
    help="One named change to the stack, for toggling, for blame and for the gate",
    keys=(
        Key(name="name", kind=TEXT, help="of the patch, unique", example='"mhc_bf16"'),
        Key(
            name="files",
            kind=TEXT,
            shape=Shape.LIST,
            help="globs of the files that make it up, relative to fidelity.toml",
            example='["kernels/mhc_bf16.py"]',
        ),
        Key(name="commit", kind=TEXT, default="", help="that brought it in", example='"1a2b3c4"'),
        Key(
            name="phase",
            kind=one_of(PHASES),
            default="both",
            help="when it runs",
            example='"decode"',
        ),
        Key(
            name="unconditional",
            kind=BOOLEAN,
            default=False,
            help="it has no toggle and always runs",
            example="true",
        ),
        Key(name="on", shape=Shape.TABLE, of=TOGGLE, help="switches it on at launch"),
        Key(name="off", shape=Shape.TABLE, of=TOGGLE, help="switches it off at launch"),
        Key(
            name="microtest",
            kind=TEXT,
            default="",
            help="pytest file that holds it against fp32 maths, relative to fidelity.toml",
            example='"suites/patches/test_mhc_bf16.py"',
        ),
        Key(
            name="suites",
            kind=TEXT,
            shape=Shape.LIST,
            help="suites that it can affect; absent means all",
            example='["needle_sweep", "multi_turn_recall"]',
        ),
        Key(
            name="active_when",
            shape=Shape.TABLE,
            of=CONDITION,
            help="what proves that it is live",
        ),
    ),
)

_CAPS = tuple(o for o in OPTIONS if o.dest in {"max_requests", "max_tokens", "max_time_s"})

BUDGET = Keys(
    title="[budgets.NAME]",
    help="Caps of one budget: quick, standard or deep. A budget never changes a threshold",
    keys=tuple(_option_key(option) for option in _CAPS),
)

GATE = Keys(
    title="[gate]",
    help="What `fidelity gate` compares, when its flags do not say otherwise",
    keys=(
        Key(name="base", kind=TEXT, help="git reference to compare with", example='"origin/main"'),
        Key(
            name="baseline",
            kind=PATH,
            help="file of the stored baseline",
            example='"fidelity-baseline.json"',
        ),
        Key(name="deployment", kind=TEXT, help="what it measures", example='"embedded"'),
        Key(name="budget", kind=one_of(Budget), help="of its suites", example='"quick"'),
        Key(
            name="suites",
            kind=TEXT,
            shape=Shape.LIST,
            help="suites that run beside those of any patch that changed",
            example='["plumbing"]',
        ),
        Key(
            name="watch",
            kind=TEXT,
            shape=Shape.LIST,
            help="globs of the patched area: a changed file there must belong to a [[patch]]",
            example='["kernels/**/*.py"]',
        ),
        Key(
            name="shared",
            kind=TEXT,
            shape=Shape.LIST,
            help="globs of files that all patches rest on: a change there concerns each of them",
            example='["kernels/common/"]',
        ),
        Key(
            name="microtest_s",
            kind=integer(1, 86_400),
            help="seconds that one microtest may take",
            example="600",
        ),
        Key(
            name="microtest_command",
            kind=TEXT,
            shape=Shape.LIST,
            help="command that runs pytest, without a shell; absent: {python} -m pytest",
            example='["{python}", "-m", "pytest"]',
        ),
        Key(
            name="microtest_support",
            kind=TEXT,
            shape=Shape.LIST,
            help=(
                "globs of files that microtests rest on, beside those in their folders: references,"
                " comparators; they may not ask for less either"
            ),
            example='["reference/**/*.py"]',
        ),
        Key(
            name="values",
            kind=TEXT,
            shape=Shape.MAP,
            help="VALUE with which a patch that takes one is switched on for the suites",
            example='{ index_keys = "fp8" }',
        ),
        Key(
            name="effect_margin",
            kind=_SHARE,
            default=0.1,
            help=(
                "how much worse than the baseline an effect may be: of a rate, or of the limit of a"
                " microtest's check"
            ),
            example="0.1",
        ),
    ),
)

HARNESS = Keys(
    title="[harness]",
    help="Options for every run, as their flags; a deployment's own value beats them",
    keys=tuple(
        _option_key(option) for option in OPTIONS if option.dest not in {"config", "resume"}
    ),
)

ROOT = Keys(
    title="the file itself",
    help="Describes what can be measured. Unknown keys are refused",
    keys=(
        Key(
            name="default",
            kind=TEXT,
            help="the deployment that is measured when nobody says otherwise",
            example='"embedded"',
        ),
        Key(name="harness", shape=Shape.TABLE, of=HARNESS, help="options for every run"),
        Key(name="request", shape=Shape.TABLE, of=REQUEST, help="the request profile"),
        Key(name="deployments", shape=Shape.NAMED, of=DEPLOYMENT, help="servers to measure"),
        Key(name="patch", shape=Shape.ARRAY, of=PATCH, help="changes to the stack"),
        Key(name="budgets", shape=Shape.NAMED, of=BUDGET, help="caps of a budget"),
        Key(name="gate", shape=Shape.TABLE, of=GATE, help="of `fidelity gate`"),
    ),
)

TABLES = (ROOT, HARNESS, BUDGET, REQUEST, DEPLOYMENT, ROLE, PATCH, TOGGLE, CONDITION, GATE)
"""Every table, in the order of the reference."""
