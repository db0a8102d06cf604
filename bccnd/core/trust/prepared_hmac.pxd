from bccnd.core.trust.integrity_algorithms cimport Hmac
from bccnd.native.buffers.datagram cimport build
from bccnd.native.buffers.hmac8 cimport Hmac8


cdef class PreparedHmac(Hmac):
    cdef Hmac8 _prepared
