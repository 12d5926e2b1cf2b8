"""A launched server for tests: answers /health, may start slowly, die, or leave children behind.

python small_server.py PORT [--die TEXT] [--slow S] [--child FILE] [--stubborn] [--print TEXT]
    [--requires URL]
"""

import argparse
import os
import signal
import subprocess
import sys
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *args):
        pass


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--die", default="")
    parser.add_argument("--slow", type=float, default=0)
    parser.add_argument("--child", default="")
    parser.add_argument("--stubborn", action="store_true")
    parser.add_argument("--print", default="", dest="text")
    parser.add_argument("--lines", type=int, default=0)
    parser.add_argument("--requires", default="")
    parsed = parser.parse_args()
    if parsed.requires:  # another server must answer already
        urllib.request.urlopen(parsed.requires, timeout=2).close()
    if parsed.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if parsed.text:
        print(parsed.text, flush=True)
    for number in range(parsed.lines):
        print(f"line {number} " + "x" * 990)
    if parsed.child:
        # one child in the group, one in a session of its own, as daemons are
        children = [
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], **options)
            for options in ({}, {"start_new_session": True})
        ]
        pids = [os.getpid(), *(child.pid for child in children)]
        ready = Path(parsed.child + ".part")
        ready.write_text(" ".join(map(str, pids)))
        ready.rename(parsed.child)
    if parsed.die:
        sys.exit(parsed.die)
    time.sleep(parsed.slow)
    HTTPServer(("127.0.0.1", parsed.port), Handler).serve_forever()


main()
