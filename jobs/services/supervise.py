"""supervisord, and after it the end of whatever a killed program left: `python -m jobs.services.supervise`.

Here and not in `up`, so that it happens after `up` was killed too. RQ's work horses are in groups of their own,
where supervisord's SIGKILL to a group of programs does not reach them.
"""

from __future__ import annotations

import os
from pathlib import Path

from supervisor import supervisord

from jobs.services.child import CONFIG
from jobs.services.state import kill_leftovers

if __name__ == "__main__":
    try:
        supervisord.main(["-c", CONFIG])
    finally:
        kill_leftovers(Path(os.environ["PROVEFLEET_STATE_DIR"]))
