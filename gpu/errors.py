"""The prover's named errors: each is one line that says which file, which section, what, why and what to
do.
"""

from __future__ import annotations

import os


class ProverError(Exception):
    """Anything the prover refuses or fails at. `str(error)` is one line, fit for stderr, a log or a JSON
    reply.
    """

    @property
    def name(self) -> str:
        """The word by which clients of the daemon tell errors apart: `bad_file`, `witness_refused`, ..."""
        return type(self).WORD

    WORD = "prover_error"


class BadFile(ProverError):
    """A file cannot be what it says it is: truncated, foreign, forged or out of range."""

    WORD = "bad_file"

    def __init__(self, path: str | os.PathLike[str], section: str, why: str, todo: str) -> None:
        super().__init__(f"{os.fspath(path)}: {section}: {why}; {todo}")
        self.section = section
        self.why = why


class WitnessRefused(ProverError):
    """The witness and the key do not belong together, or the witness does not satisfy the circuit."""

    WORD = "witness_refused"


class ProofRejected(ProverError):
    """A proof that does not verify, or is not in the one form that counts. `reason` is the line without a
    prefix.
    """

    WORD = "proof_rejected"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Refused(ProverError):
    """The request is well understood and will not be done: missing flag, too little memory, draining
    daemon.
    """

    WORD = "refused"


class Cancelled(ProverError):
    """Somebody asked for the proof not to be made after all."""

    WORD = "cancelled"


class DeadlineExceeded(ProverError):
    """The time that the request gave its proof has passed."""

    WORD = "deadline_exceeded"


class OutOfMemory(Refused):
    """The work would need more memory than there is; said before it starts."""

    WORD = "out_of_memory"


class KeyInUse(Refused):
    """A key can't be evicted while proofs are made with it."""

    WORD = "key_in_use"


class DaemonFailed(ProverError):
    """The proving daemon could not be started, reached or understood, or it died."""

    WORD = "daemon_failed"

    def __init__(self, message: str, cause: str = "") -> None:
        super().__init__(message)
        self._cause = cause

    @property
    def name(self) -> str:
        """The daemon's own word for what went wrong, where it gave one."""
        return self._cause or self.WORD
