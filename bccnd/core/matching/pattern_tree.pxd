cimport cython


@cython.final
cdef class _Node:
    cdef dict exact
    cdef dict wild
    cdef public dict ends
    cdef public dict rests

    cpdef dict children(self, Py_ssize_t kind)
    cpdef drop(self, Py_ssize_t kind, bytes token)
    cpdef bint empty(self)


@cython.final
cdef class _Walk:
    cdef readonly Py_ssize_t steps
    cdef Py_ssize_t _count
    cdef object _end
    cdef list _tokens
    cdef dict _found
    cdef dict _where

    @cython.locals(token=bytes, child=_Node, kind=Py_ssize_t, table=dict)
    cpdef visit(self, _Node node, Py_ssize_t position)
    @cython.locals(token=bytes, where=dict, table=dict)
    cdef _visit_several(self, _Node node, object at)
    cdef _add_ends(self, _Node node)
    cdef _add(self, dict holders)
    @cython.locals(token=bytes, number=Py_ssize_t)
    cdef dict _index_tokens(self)
