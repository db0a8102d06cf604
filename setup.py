"""Builds the library of compiled modules; everything else about the package stands in pyproject.toml.

The list of them is in `bccnd/compiled_modules.py`, which also finds them in the library. Each is compiled from its
`.py`, with the types of the `.pxd` beside it; the primitives in `native` are written in C terms (`.pyx`).

BCCND_PURE=1 builds the pure package, for client programs only, without the library and without a compiler. BCCND_PURE=0
builds the whole package or fails. Without either, a machine that cannot compile gets the pure package, and a line says
why.
"""

from __future__ import annotations

import glob
import os
import re
import runpy
import shlex
import subprocess
import sysconfig
import tomllib
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from setuptools import Distribution, Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

# Each call from outside the modules touches one line of memory less without a linkage table.
OPTIONS: Final = ["-O2", "-fno-plt", "-Wno-deprecated-declarations"]

# `@cython.final` in a .pxd spares each call of a cpdef method two lines of memory: its type is not looked at first.
DIRECTIVES: Final = {
    "language_level": 3,
    # Types come from the .pxd files: an annotation `int` means any integer, not one of the machine's.
    "annotation_typing": False,
    "embedsignature": True,
}

# Links within the repository, outside of code
RELATIVE_LINK: Final = re.compile(r"(?P<code>```.*?```|`[^`\n]*`)|\]\((?!#|[a-z]+:)", re.DOTALL)

# Files for programs that look for them on a disk, by their folder in the installed package; docs/monitoring.md
SHARED: Final = {"bccnd/share/prometheus": "etc/prometheus/*.yml", "bccnd/share/grafana": "etc/grafana/*.json"}


def readme() -> str:
    """Return README.md for package indexes, which show it without the repository: with absolute links."""
    base = tomllib.loads(Path("pyproject.toml").read_text())["project"]["urls"]["Homepage"]
    text = Path("README.md").read_text()
    return RELATIVE_LINK.sub(lambda found: found["code"] or f"]({base}", text)


def source(name: str) -> str:
    """Return the file that a module is compiled from."""
    path = name.replace(".", "/")
    return f"{path}.pyx" if os.path.exists(f"{path}.pyx") else f"{path}.py"


def translate(paths: list[str]) -> list[str]:
    """Translate modules to C, only those that have changed, and return the C files."""
    from Cython.Build import cythonize  # only where something is compiled

    modules = [Extension(os.path.splitext(path)[0].replace("/", "."), [path]) for path in paths]
    # Cython does not know every module that uses a .pxd: one that is newer translates all of them again.
    declared = max(os.path.getmtime(path) for path in glob.glob("bccnd/**/*.pxd", recursive=True))
    made = [f"build/c/{os.path.splitext(path)[0]}.c" for path in paths]
    written = [os.path.getmtime(path) for path in made if os.path.exists(path)]
    translated = cythonize(
        modules,
        build_dir="build/c",
        compiler_directives=DIRECTIVES,
        nthreads=os.cpu_count() or 1,
        force=any(when < declared for when in written),
    )
    return [path for module in translated for path in module.sources]


def cannot_compile() -> str:
    """Say why this machine cannot compile the library; nothing if it can."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    command = [*compiler, "-fsyntax-only", f"-I{sysconfig.get_path('include')}", "-x", "c", "-"]
    headers = b"#include <Python.h>\n#include <openssl/sha.h>\n"
    try:
        done = subprocess.run(command, input=headers, capture_output=True, check=False)  # noqa: S603 -- the user's own
    except OSError as error:
        return str(error)
    lines = done.stderr.decode(errors="replace").splitlines()
    return next((line for line in lines if "error" in line), f"{compiler[0]} fails") if done.returncode else ""


class Package(Distribution):
    """The package, with the library if it is wanted and this machine can compile it."""

    @cached_property
    def compiled(self) -> bool:
        wanted = os.environ.get("BCCND_PURE", "")
        if wanted:
            return wanted == "0"
        if why := cannot_compile():
            print(f"bccnd: building the pure package, as this machine cannot compile: {why}")
        return not why

    def has_ext_modules(self) -> bool:
        return bool(self.ext_modules) and self.compiled


class BuildLibrary(build_ext):
    """Compiles the sources of a library side by side, and only those that have changed."""

    def build_extension(self, ext: Extension) -> None:
        ext.sources = translate(ext.sources)
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
        super().build_extension(ext)


class BuildPackage(build_py):
    """Copies the modules, and the shared files."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        for folder, pattern in SHARED.items():
            target = Path(self.build_lib) / folder
            self.mkpath(str(target))
            for path in sorted(glob.glob(pattern)):
                self.copy_file(path, str(target))


def library() -> Extension:
    """Describe the library of all compiled modules."""
    listed = runpy.run_path("bccnd/compiled_modules.py")
    # Symbols for a debugger where whoever builds asks for them, as Debian does.
    symbols = [] if "-g" in os.environ.get("CFLAGS", "").split() else ["-g0"]
    return Extension(
        listed["LIBRARY"].replace("/", "."),
        [source(name) for name in listed["COMPILED"]],
        libraries=["crypto"],
        depends=[__file__],
        extra_compile_args=[*OPTIONS, *symbols],
    )


# Processes that translate import this file again.
if __name__ == "__main__":
    setup(
        distclass=Package,
        long_description=readme(),
        long_description_content_type="text/markdown",
        ext_modules=[library()],
        cmdclass={"build_ext": BuildLibrary, "build_py": BuildPackage},
    )
