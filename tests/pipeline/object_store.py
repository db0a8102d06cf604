"""An S3 server as a process of this machine."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bccnd.journal.files import open_root
from tests.support import free_port, wait

BUCKET = "fleet"
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}


def place(address: str, path: str) -> str:
    """The URI of a path in the bucket, with all that is needed to get there."""
    options = f"endpoint_override={address}&scheme=http&region=us-east-1"
    return f"s3://key:secret@{BUCKET}/{path}?{options}"


@contextmanager
def serve(log: Path) -> Iterator[str]:
    """The address of a server with an empty bucket."""
    address = f"127.0.0.1:{free_port()}"
    host, _, port = address.partition(":")
    command = [sys.executable, "-m", "moto.server", "-H", host, "-p", port]
    with log.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=file) as server:
        try:
            with socket.socket() as probe:
                wait(lambda: not probe.connect_ex((host, int(port))) or server.poll() is not None, "the server", 60)
            store, _ = open_root(place(address, "") + "&allow_bucket_creation=true")
            store.create_dir(BUCKET)
            yield address
        finally:
            server.terminate()
