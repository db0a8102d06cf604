"""`bccn keygen`: makes a key in a file."""

from __future__ import annotations

import os
import secrets

import click

from bccnd.cli.shared.output import fail


@click.command()
@click.argument("file", type=click.Path(dir_okay=False))
@click.option(
    "--algorithm", type=click.Choice(["hmac", "sig"]), default="hmac", help="A shared key, or a pair of keys."
)
@click.option("--force", is_flag=True, help="Replace an existing key.")
def keygen(file: str, algorithm: str, force: bool) -> None:
    """Write a random key to FILE, which only its owner can read (for sig, also its public key to FILE.pub).

    \b
    hmac: give every host of the segment the same file, and name it in the configuration:
      integrity: {algorithm: hmac, keys: [/etc/bccnd/keys/hmac.key]}
    To change keys without losing a message:
      1. Append the new key on every host (keys: [old, new]), and restart: a service reads new files only then.
      2. Swap the order on every host (keys: [new, old]) and reload.
      3. When 'bccn keys' shows no source with the old key, remove it on every host and reload.

    \b
    sig: FILE stays on this host, FILE.pub goes to all others, under the first part of its sources' names:
      integrity: {algorithm: sig, keys: [/etc/bccnd/keys/sign.key], signers: {relay01: [relay01.pub]}}
    To change keys without losing a message:
      1. Append the new public key on every host (signers: {relay01: [old.pub, new.pub]}), and restart: a service
         reads new files only then.
      2. Sign with the new key on this host, and restart.
      3. When 'bccn keys' shows no source with the old key, remove old.pub on every host and reload.

    The command prints the fingerprint of the key; 'bccn keys' shows the same one. crc32 needs no key.
    """
    if not force:
        for name in [file, *([f"{file}.pub"] if algorithm == "sig" else [])]:
            if os.path.exists(name):
                fail(f"{name} exists\n  remedy: choose another name, or use --force to replace the key")
    from bccnd.core.trust.integrity_algorithms import fingerprint

    if algorithm == "hmac":
        key = secrets.token_hex(32).encode()
        _write(file, key + b"\n", 0o600)
        click.echo(f"{file}: a new key of 256 bits, mode 0600, fingerprint {fingerprint(key)}", err=True)
        return
    from bccnd.core.trust import signatures  # loads a library that other commands do not need

    private = signatures.generate()
    public = signatures.public_of(private)
    _write(file, private, 0o600)
    _write(f"{file}.pub", public, 0o644)
    half = f"{file}.pub: its public key, mode 0644, fingerprint {signatures.fingerprint_of(public)}"
    click.echo(f"{file}: a new private key (Ed25519), mode 0600; {half}", err=True)


def _write(file: str, key: bytes, mode: int) -> None:
    """Write a key to a new file and rename it, so that no reader gets half a key."""
    new = f"{file}.{os.getpid()}.new"
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as out:
            os.fchmod(descriptor, mode)  # whatever the umask
            out.write(key)
        os.replace(new, file)
    except OSError as error:
        fail(f"cannot write {file}: {error.strerror}")
