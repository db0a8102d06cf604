"""Builds the library of compiled modules; everything else about the package stands in pyproject.toml.

The list of them is in `bccnd/compiled_modules.py`, which also finds them in the library. Each is compiled from the same
`.py` that runs uncompiled, with the types of the `.pxd` beside it; the primitives in `native` are written in C terms
(`.pyx`). BCCND_PURE=1 builds without the library and without a compiler.
"""

from __future__ import annotations

import glob
import os
import runpy
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import LinkError

# Each call from outside the modules touches one line of memory less without a linkage table. Each function is a
# section, so that the linker can put those together that a message runs.
OPTIONS = ["-O2", "-g0", "-fno-plt", "-ffunction-sections", "-Wno-deprecated-declarations"]
LINKER_SCRIPT = "bccnd/message_path.ld"

# `@cython.final` in a .pxd spares each call of a cpdef method two lines of memory: its type is not looked at first.
DIRECTIVES = {
    "language_level": 3,
    # Types come from the .pxd files: an annotation `int` means any integer, not one of the machine's.
    "annotation_typing": False,
    "embedsignature": True,
}


class BuildLibrary(build_ext):
    """Compiles the sources of a library side by side, and only those that have changed."""

    def build_extension(self, ext: Extension) -> None:
        compiler = self.compiler
        compile_all = compiler.compile

        def compile_one(source: str, **options: Any) -> list[str]:
            (target,) = compiler.object_filenames([source], output_dir=options["output_dir"])
            newest = max(os.path.getmtime(one) for one in (source, __file__))
            if os.path.exists(target) and os.path.getmtime(target) > newest:
                return [target]
            return list(compile_all([source], **options))

        def compile_each(sources: list[str], **options: Any) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                return [made for each in pool.map(lambda one: compile_one(one, **options), sources) for made in each]

        compiler.compile = compile_each
        compiler.force = True  # links again where only the linker script has changed
        try:
            super().build_extension(ext)
        except LinkError:  # not every linker knows such scripts
            ext.extra_link_args = []
            super().build_extension(ext)


def extensions() -> list[Extension]:
    if os.environ.get("BCCND_PURE", "0") not in ("", "0"):
        return []
    from Cython.Build import cythonize

    listed = runpy.run_path("bccnd/compiled_modules.py")
    modules = []
    for name in listed["COMPILED"]:
        path = name.replace(".", "/")
        modules.append(Extension(name, [f"{path}.pyx" if os.path.exists(f"{path}.pyx") else f"{path}.py"]))
    # A .pxd speaks to all who use it, and not all of them are found out by themselves.
    declared = max(os.path.getmtime(path) for path in glob.glob("bccnd/*/*.pxd"))
    written = [os.path.getmtime(path) for path in glob.glob("build/c/bccnd/*/*.c")]
    translated = cythonize(
        modules,
        build_dir="build/c",
        compiler_directives=DIRECTIVES,
        nthreads=os.cpu_count() or 1,
        force=any(when < declared for when in written),
    )
    return [
        Extension(
            listed["LIBRARY"].replace("/", "."),
            [source for module in translated for source in module.sources],
            libraries=["crypto"],
            depends=[__file__, LINKER_SCRIPT],
            extra_compile_args=OPTIONS,
            extra_link_args=[f"-Wl,-T,{LINKER_SCRIPT}"],
        )
    ]


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildLibrary})
