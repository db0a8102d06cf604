"""Checks of files: the configuration, keys, certificates, and the folders of the recorder."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import Final

from bccnd.core.formats.uri import is_uri
from bccnd.doctor.probe import Probe
from bccnd.doctor.result import CheckFinding, look, not_checked, ok, wrong
from bccnd.paths import KEY_FOLDER

DAY: Final = 86_400.0
#: days before its end within which a certificate has to be renewed
RENEWAL: Final = 30
#: the share of a disk below which it is nearly full
NEARLY_FULL: Final = 0.05


def check_configuration(probe: Probe) -> Iterator[CheckFinding]:
    """Every fault that the daemon would find in the file."""
    for fault in probe.target.faults:
        place = f"{fault.file}:{fault.line}" if fault.line else fault.file
        yield wrong(f"{place}: {fault.path}{': ' * bool(fault.path)}{fault.reason}", fault.remedy)
    if not probe.target.faults:
        yield ok(f"{probe.target.file}: in order")
    if probe.target.settings is None:
        yield not_checked("the other checks use the defaults until these faults are corrected")


def check_keys(probe: Probe) -> Iterator[CheckFinding]:
    """Key files: there, readable and replaceable by the daemon alone, and well-formed."""
    integrity = probe.settings.integrity
    files: list[tuple[str, str, str]] = [("key", name, integrity.algorithm) for name in integrity.keys]
    for prefix, names in integrity.signers.items():
        files += [(f"public key of {prefix or 'all others'}", name, "") for name in names]
    for kind, name, algorithm in files:
        path = os.path.join(os.path.dirname(probe.target.file), name)
        missing = f"bccn keygen {path}, or copy an existing key there"
        for finding in _check_file(probe, f"{kind} {path}", path, missing, secret=bool(algorithm)):
            problem = probe.key_problem(path, algorithm) if finding.state == "ok" else ""
            yield wrong(f"{kind} {path}: {problem}", "replace it with the right file") if problem else finding
        if probe.by_service and not path.startswith(f"{KEY_FOLDER}/"):
            remedy = f"move it to {KEY_FOLDER}, change the configuration, and {probe.service('restart')}"
            yield look(f"{kind} {path}: the service gets keys from {KEY_FOLDER} only", remedy)


def check_certificates(probe: Probe) -> Iterator[CheckFinding]:
    """Files of the links, and when certificates expire."""
    tls = probe.settings.gateways.nng.tls if probe.settings.gateways.nng is not None else None
    for name in () if tls is None else ("ca", "certificate", "key"):
        path = os.path.join(os.path.dirname(probe.target.file), getattr(tls, name))
        remedy = "make a new one (docs/links.md)"
        for finding in _check_file(probe, f"tls.{name} {path}", path, remedy, secret=name == "key"):
            if finding.state != "ok" or name == "key":
                yield finding
                continue
            try:
                days = probe.certificate_expires(path) / DAY
            except ValueError:
                yield wrong(f"tls.{name} {path}: has no certificate in PEM", remedy)
            else:
                text = f"tls.{name} {path} {f'expires in {days:.0f} days' if days > 0 else 'has expired'}"
                yield ok(text) if days >= RENEWAL else (look if days > 0 else wrong)(text, remedy)


def _check_file(probe: Probe, what: str, path: str, missing: str, *, secret: bool) -> Iterator[CheckFinding]:
    """Owner and permissions of a file; ``missing`` is the remedy if it is not there."""
    try:
        file, folder = probe.stat(path), probe.stat(os.path.dirname(path) or "/")
    except PermissionError:
        yield not_checked(f"{what}: this user may not read the folder", "run this as root")
        return
    except OSError as error:
        yield wrong(f"{what}: {error.strerror}", missing)
        return
    mode, faults = stat.S_IMODE(file.st_mode), []
    credential = file.st_uid == 0 and not mode & ~0o440
    if not stat.S_ISREG(file.st_mode):
        faults.append(wrong(f"{what} is not a regular file", missing))
    elif secret and mode & 0o077 and not credential:
        faults.append(wrong(f"{what} has mode {mode:04o}: others can read it", f"chmod 600 {path}"))
    elif not secret and mode & 0o022:
        faults.append(wrong(f"{what} has mode {mode:04o}: others can replace it", f"chmod 644 {path}"))
    if probe.owner is not None and file.st_uid not in (0, probe.owner):
        finding = f"{what} belongs to uid {file.st_uid}; the daemon accepts only its own files and root's"
        faults.append(wrong(finding, f"chown {probe.owner} {path}"))
    if folder.st_mode & 0o022 and not folder.st_mode & stat.S_ISVTX:
        finding = f"{what}: others can write to its folder, and so replace it"
        faults.append(wrong(finding, f"chmod go-w {os.path.dirname(path) or '/'}"))
    if not faults and not probe.access(path, os.R_OK, effective_ids=True):
        faults.append(not_checked(f"{what}: mode {mode:04o}; this user may not read it", "run this as root"))
    yield from faults or [ok(f"{what}: mode {mode:04o}, of uid {file.st_uid}")]


def check_recorder(probe: Probe) -> Iterator[CheckFinding]:
    """The folders that the recorder writes to: there, and with room."""
    recorder = probe.settings.recorder
    unit = probe.units.get("bccnd-recorder.service", {})
    runs = unit.get("ActiveState") == "active" or unit.get("UnitFileState") == "enabled"
    folders = (("journal", recorder.journal, 2 * recorder.rotate_size), ("spool", recorder.spool, recorder.spool_size))
    for name, path, needed in folders:
        what = f"{name} {path}"
        if path is None or is_uri(path):
            continue
        try:
            disk = probe.disk_usage(path)
        except OSError as error:
            if runs:
                yield wrong(f"{what}: {error.strerror}", f"install -d -m 0750 {path}, owned by the recorder's user")
            else:
                yield not_checked(f"{what}: {error.strerror}; the recorder is not enabled on this host")
            continue
        room = f"{what}: {disk.free >> 20:,} MiB of {disk.total >> 20:,} MiB are free"
        remedy = "make room, set recorder.keep.age or recorder.keep.size, or move the journal"
        if disk.free < needed:
            yield (wrong if runs else look)(f"{room}; {needed >> 20:,} MiB are needed", remedy)
        else:
            yield look(room, remedy) if disk.free < NEARLY_FULL * disk.total else ok(room)
