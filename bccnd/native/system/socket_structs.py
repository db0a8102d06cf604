"""C structures of recvmmsg(2) and sendmmsg(2), for the plain twins."""

from __future__ import annotations

import ctypes
from typing import Final

#: bytes for control data: a header (16 bytes on 64 bit) and struct timespec
CONTROL: Final = 64

libc = ctypes.CDLL(None, use_errno=True)


class Iovec(ctypes.Structure):
    _fields_ = (("iov_base", ctypes.c_void_p), ("iov_len", ctypes.c_size_t))


class Msghdr(ctypes.Structure):
    _fields_ = (
        ("msg_name", ctypes.c_void_p),
        ("msg_namelen", ctypes.c_uint32),
        ("msg_iov", ctypes.c_void_p),
        ("msg_iovlen", ctypes.c_size_t),
        ("msg_control", ctypes.c_void_p),
        ("msg_controllen", ctypes.c_size_t),
        ("msg_flags", ctypes.c_int),
    )


class Mmsghdr(ctypes.Structure):
    _fields_ = (("msg_hdr", Msghdr), ("msg_len", ctypes.c_uint32))
