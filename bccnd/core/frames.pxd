cpdef bytes batch(list messages)
cpdef list read_batch(bytes packet)
