"""llama.cpp's own HTTP server, as the wheel `xllamacpp` embeds it, until a signal ends it.

The wheel starts the server in a thread of this process and has no command line of its own: this
script gives it the few flags that a deployment needs, under the names of `llama-server`.
"""

import argparse
import signal
import sys
import threading


def parse(arguments: list[str]) -> argparse.Namespace:
    """Return the flags; names and meanings are those of llama-server."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="a GGUF file")
    parser.add_argument("--alias", default="", help="name of the model in the API")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--ctx-size", type=int, default=0, help="tokens of all slots together")
    parser.add_argument("--parallel", type=int, default=1, help="slots")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--metrics", action="store_true", help="Prometheus text at /metrics")
    parser.add_argument("--no-cache-prompt", action="store_true", help="no prefix cache")
    parser.add_argument("--context-shift", action="store_true")
    parser.add_argument("--rope-freq-base", type=float, default=0.0, help="0: the model's own")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Serve until SIGTERM or SIGINT."""
    flags = parse(arguments)
    try:
        import xllamacpp
    except ImportError as error:
        print(f"xllamacpp is not installed for {sys.executable} ({error})", file=sys.stderr)
        return 2
    params = xllamacpp.CommonParams()
    params.model.path = flags.model
    if flags.alias:
        params.model_alias = {flags.alias}
    params.hostnames = [flags.host]
    params.port = flags.port
    params.n_ctx = flags.ctx_size
    params.n_parallel = flags.parallel
    params.cpuparams.n_threads = flags.threads
    params.cpuparams_batch.n_threads = flags.threads
    params.endpoint_metrics = flags.metrics
    params.cache_prompt = not flags.no_cache_prompt
    params.ctx_shift = flags.context_shift
    params.rope_freq_base = flags.rope_freq_base
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    server = xllamacpp.Server(params)
    print(f"listening on {server.listening_address}", flush=True)
    ended.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
