"""`python -m gpu.agent`: settings from the environment, then `core.Agent`."""

from __future__ import annotations

import os
import shutil
import sys

from gpu.agent.core import Agent
from gpu.agent.environment import BadEnvironment, take_environment
from gpu.agent.shipper import Shipper


def main() -> int:
    """The exit code: see `core.Agent.run`; 2 for a bad environment."""
    os.umask(0o077)
    try:
        environment = take_environment(os.environ)
    except BadEnvironment as error:
        sys.stderr.write(f"provefleet agent: {error}\n")
        return 2
    shipper = Shipper(environment.work, [environment.bootstrap_token])
    try:
        return Agent(environment, shipper).run()
    finally:
        # Witnesses are the customer's secret: whatever happened, they don't stay.
        shutil.rmtree(environment.work / "witnesses", ignore_errors=True)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads that wait for a controller that is away must not hold the process
