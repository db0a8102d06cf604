"""Cython primitives, which the daemon needs: a client program imports them only where they are compiled."""

from bccnd.compiled_modules import find_library
from bccnd.errors import StartError

if not find_library():
    raise StartError(
        "not_compiled",
        "this is the pure package of bccnd, for client programs: it has no compiled modules for this Python",
        "install the Debian package, or the compiled wheel that make wheel builds with this version of Python",
    )
