cimport cython
from bccnd.core.tracking.dedup cimport TrackerTable
from bccnd.core.tracking.source cimport Source, set_window


@cython.locals(source=Source, src=bytes, absent=bytes, missing=bytes)
cdef _resume_sources(TrackerTable trackers, object rows, double now)
