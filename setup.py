"""Builds the compiled modules; everything else about the package stands in pyproject.toml.

The list is explicit: what is on it is compiled from the same `.py` that runs uncompiled, with the types of the `.pxd`
beside it, but for the primitives in `native`, which are written in C terms (`.pyx`). BCCND_PURE=1 builds without them
and without a compiler.
"""

from __future__ import annotations

import glob
import os

from setuptools import Extension, setup

COMPILED = (
    "bccnd/native/counts.pyx",
    "bccnd/native/slice_dict.pyx",
    "bccnd/native/hmac8.pyx",
    "bccnd/native/inflight.pyx",
    "bccnd/native/poller.pyx",
    "bccnd/native/record_buffer.pyx",
    "bccnd/native/sockio.pyx",
    "bccnd/native/scan.pyx",
    "bccnd/native/spare_bytes.pyx",
    "bccnd/core/fanout_groups.py",
    "bccnd/core/tracker_log.py",
    "bccnd/core/tracker_replay.py",
    "bccnd/core/integrity_algorithms.py",
    "bccnd/core/counters.py",
    "bccnd/core/deliveries.py",
    "bccnd/core/latency_histogram.py",
    "bccnd/core/dedup.py",
    "bccnd/core/frames.py",
    "bccnd/core/ingress.py",
    "bccnd/core/integrity.py",
    "bccnd/core/anonymous_dedup.py",
    "bccnd/core/lru.py",
    "bccnd/core/pattern_tree.py",
    "bccnd/core/routes.py",
    "bccnd/bus/fanout.py",
    "bccnd/bus/input_transaction.py",
    "bccnd/bus/segment_reader.py",
    "bccnd/bus/send_queues.py",
    "bccnd/net/loop.py",
)

# Each call from outside the modules touches one line of memory less without a linkage table.
OPTIONS = ["-O2", "-g0", "-fno-plt", "-Wno-deprecated-declarations"]

# `@cython.final` in a .pxd spares each call of a cpdef method two lines of memory: its type is not looked at first.
DIRECTIVES = {
    "language_level": 3,
    # Types come from the .pxd files: an annotation `int` means any integer, not one of the machine's.
    "annotation_typing": False,
    "embedsignature": True,
}


def extensions() -> list[Extension]:
    if os.environ.get("BCCND_PURE", "0") not in ("", "0"):
        return []
    from Cython.Build import cythonize

    modules = []
    for source in COMPILED:
        name = os.path.splitext(source)[0].replace("/", ".")
        modules.append(
            Extension(
                name,
                [source],
                libraries=["crypto"] if name == "bccnd.native.hmac8" else [],
                extra_compile_args=OPTIONS,
            )
        )
    # A .pxd speaks to all who use it, and not all of them are found out by themselves.
    declared = max(os.path.getmtime(path) for path in glob.glob("bccnd/*/*.pxd"))
    written = [os.path.getmtime(path) for path in glob.glob("build/c/bccnd/*/*.c")]
    built: list[Extension] = cythonize(
        modules,
        build_dir="build/c",
        compiler_directives=DIRECTIVES,
        nthreads=os.cpu_count() or 1,
        force=any(when < declared for when in written),
    )
    return built


setup(ext_modules=extensions())
