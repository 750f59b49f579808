"""`provefleet up` with real stores and, in place of the control plane, two tiny web servers; with a program that
fails at once, or one that won't leave, where asked.

python -m tests.jobs.services.standin [broken | stubborn]
"""

from __future__ import annotations

import sys

import click

from jobs.services import foreground, ready
from jobs.services.errors import ServiceError
from jobs.services.programs import PYTHON, Program
from jobs.services.up import Stack
from jobs.settings import Settings

SERVER = """
import http.server, sys
class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"ok")
    def log_message(self, *a): pass
host, port = sys.argv[1].rsplit(":", 1)
http.server.ThreadingHTTPServer((host, int(port)), Page).serve_forever()
"""
# Like a pool of RQ workers: a child in a group of its own, which starts a program; neither hears of SIGTERM.
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setpgrp()
    subprocess.run([sys.executable, "-c", "import time; time.sleep(300)"])
time.sleep(300)
"""
BROKEN = "import sys; sys.exit('the reactor has no coolant')"


def server(name: str, bind: str) -> Program:
    return Program(name, (*PYTHON, "-c", SERVER, bind), ready=lambda: ready.web(bind))


def app(settings: Settings) -> list[Program]:
    programs = [server("site", settings.site_bind), server("machine", settings.agent_bind)]
    if "stubborn" in sys.argv:
        programs.append(Program("workers", (*PYTHON, "-c", STUBBORN)))
    if "broken" in sys.argv:
        programs.append(Program("workers", (*PYTHON, "-c", BROKEN)))
    return programs


if __name__ == "__main__":
    try:
        sys.exit(foreground.run(Stack(foreground.tell, app)))
    except ServiceError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(1)
