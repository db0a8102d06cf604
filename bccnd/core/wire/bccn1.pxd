cpdef bytes build_body(bytes src, object seq, bytes chan, bytes payload)
cpdef bytes build(bytes body, bytes check=*)
