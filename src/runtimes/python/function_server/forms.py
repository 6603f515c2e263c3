"""Queries, forms and uploads. Bounded: what has too many parts is refused."""

import io
import os
import re
import unicodedata
from urllib.parse import unquote_plus

from .multidict import FormsDict, HeaderDict
from .response import HTTPError

MOST_FIELDS = 1000
LONGEST_PART_HEAD = 8 * 1024  # bytes


def parse_query(text):
    fields = FormsDict()
    for pair in text.split("&", MOST_FIELDS):
        if pair:
            name, _, value = pair.partition("=")
            fields.append(unquote_plus(name), unquote_plus(value))
    return fields


def parse_options(header):
    """A header like `form-data; name="x"`: its value, and its parameters."""
    value, _, rest = header.partition(";")
    options = {}
    for name, quoted, bare in re.findall(r';?\s*([^\s=;]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;]*))', rest):
        options.setdefault(name.lower(), re.sub(r"\\(.)", r"\1", quoted) if quoted else bare)
    return value.strip().lower(), options


class FileUpload:
    """One uploaded file."""

    def __init__(self, fileobj, name, filename, headers=None):
        self.file = fileobj
        self.name = name
        self.raw_filename = filename
        self.headers = HeaderDict(headers or {})

    @property
    def content_type(self):
        return self.headers.get("Content-Type", "")

    @property
    def content_length(self):
        return self.headers.get("Content-Length", -1, type=int)

    def get_header(self, name, default=None):
        return self.headers.get(name, default)

    @property
    def filename(self):
        """The name of the file, made safe to store under."""
        base = os.path.basename(self.raw_filename.replace("\\", os.path.sep))
        plain = unicodedata.normalize("NFKD", base).encode("ascii", "ignore").decode("ascii")
        kept = re.sub(r"[^a-zA-Z0-9-_.\s]", "", plain).strip()
        return re.sub(r"[-\s]+", "-", kept).strip(".-")[:255] or "empty"

    def save(self, destination, overwrite=False, chunk_size=2**16):
        """Stores the file under a path, in a folder or in an open file."""
        if isinstance(destination, str):
            if os.path.isdir(destination):
                destination = os.path.join(destination, self.filename)
            if not overwrite and os.path.exists(destination):
                raise OSError("File exists.")
            with open(destination, "wb") as target:
                self.save(target, overwrite, chunk_size)
            return
        offset = self.file.tell()
        for chunk in iter(lambda: self.file.read(chunk_size), b""):
            destination.write(chunk)
        self.file.seek(offset)


def parse_multipart(data, boundary):
    """The fields and the files of a form: pairs of a name and a text or a [`FileUpload`]."""
    mark = b"--" + boundary.encode("latin-1")
    if not boundary or len(boundary) > 200:
        raise HTTPError(400, "Invalid multipart boundary")
    pieces = (b"\r\n" + data).split(b"\r\n" + mark)
    if len(pieces) > MOST_FIELDS + 2:
        raise HTTPError(413, "Too many parts")
    if len(pieces) < 2 or not pieces[-1].startswith(b"--"):
        raise HTTPError(400, "The form is not complete")
    return [_part(piece) for piece in pieces[1:-1]]


def _part(piece):
    head, gap, content = piece.partition(b"\r\n\r\n")
    if not gap or len(head) > LONGEST_PART_HEAD:
        raise HTTPError(400, "A part of the form has no headers")
    headers = {}
    for line in head.decode("utf8", "replace").split("\r\n")[1:]:
        name, _, value = line.partition(":")
        headers[name.strip()] = value.strip()
    named = HeaderDict(headers)
    kind, options = parse_options(named.get("Content-Disposition", ""))
    if kind != "form-data" or "name" not in options:
        raise HTTPError(400, "A part of the form has no name")
    if "filename" in options:
        return options["name"], FileUpload(io.BytesIO(content), options["name"], options["filename"], headers)
    return options["name"], content.decode("utf8", "replace")
