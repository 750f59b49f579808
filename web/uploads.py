"""Files on their way from a browser to the archive, read as they come: never whole in memory or on disk.

Two ways in: a raw body (the page's own script, with a progress bar), or an ordinary multipart form for
browsers without scripts, whose CSRF token must come before the first file.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import IO

from flask import Request
from flask_wtf.csrf import CSRFError, validate_csrf
from werkzeug.sansio.multipart import Data, Epilogue, Field, File, MultipartDecoder, NeedData
from wtforms.validators import ValidationError  # type: ignore[import-untyped]

READ_BYTES = 64 * 1024
MAX_FIELD_BYTES = 8 * 1024


class BadUpload(ValueError):
    """The body is not what a form of ours sends; the text says what is wrong."""


def check_token(token: str) -> None:
    """CSRF for a body that Flask must not parse. Raises `CSRFError`."""
    try:
        validate_csrf(token)
    except ValidationError as error:
        raise CSRFError(str(error)) from error


class FilePart(io.RawIOBase):
    """One file of a multipart body. Readable once, in order."""

    def __init__(self, parts: Multipart, filename: str):
        self.filename = filename
        self._parts = parts
        self._left = b""
        self._more = True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self._left and self._more:
            event = self._parts.next_event()
            if not isinstance(event, Data):
                raise BadUpload("the upload broke off inside a file; send it again")
            self._left, self._more = event.data, event.more_data
        taken = self._left[: len(buffer)]
        buffer[: len(taken)] = taken
        self._left = self._left[len(taken) :]
        return len(taken)

    def drain(self) -> None:
        """Skip what nobody read, so that the next part can begin."""
        while self.read(READ_BYTES):
            pass


class Multipart:
    """The parts of a multipart body, as they come. `fields`: what came before the file at hand."""

    def __init__(self, request: Request):
        boundary = request.mimetype_params.get("boundary", "")
        if request.mimetype != "multipart/form-data" or not boundary:
            raise BadUpload("an upload form sends multipart/form-data")
        self._stream: IO[bytes] = request.stream
        self._decoder = MultipartDecoder(
            boundary.encode("latin-1"), max_form_memory_size=4 * READ_BYTES, max_parts=2000
        )
        self.fields: dict[str, str] = {}

    def next_event(self) -> object:
        while True:
            try:
                event = self._decoder.next_event()
            except ValueError as error:
                raise BadUpload(f"the upload broke off, or is no form of ours ({error}); send it again") from error
            if not isinstance(event, NeedData):
                return event
            data = self._stream.read(READ_BYTES)
            self._decoder.receive_data(data or None)

    def files(self) -> Iterator[FilePart]:
        """Each file in turn; an input left empty sends a nameless one, which is left out."""
        while not isinstance(event := self.next_event(), Epilogue):
            if isinstance(event, Field):
                self.fields[event.name] = self._text()
            elif isinstance(event, File):
                part = FilePart(self, event.filename)
                if event.filename:
                    yield part
                part.drain()

    def _text(self) -> str:
        text = b""
        while isinstance(event := self.next_event(), Data):
            text += event.data
            if len(text) > MAX_FIELD_BYTES:
                raise BadUpload("a field of the form is too long; only the token comes before the files")
            if not event.more_data:
                return text.decode("utf-8", "replace")
        raise BadUpload("the upload broke off inside a field; send it again")
