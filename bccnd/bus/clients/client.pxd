cimport cython
from bccnd.core.sending.user_quota cimport UserAccount


@cython.final
cdef class Client:
    cdef readonly object sock
    cdef readonly int fd
    cdef readonly long long number
    cdef public object peer
    cdef readonly bytes base
    cdef public bytes identity
    cdef public object dialect
    cdef readonly UserAccount account
    cdef readonly object rights
    cdef readonly object publishes
    cdef public object since
    cdef public object queue
    cdef public bytes soft
    cdef public bytes hard
    cdef public bint echo
    cdef public bint local
    cdef public bint patient
    cdef public double progress
    cdef public double turn
    cdef public object patience_timer
    cdef public object retry
    cdef public bytes blocked_packet
    cdef public object record
    cdef public long long subscriptions
    cdef public long long published
    cdef public long long lost
    cdef public bint open
    cdef public int watched
    cdef public object events
    cdef public object listing
