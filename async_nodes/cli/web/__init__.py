"""Several web processes on one port.

`child` is one of them as seen from outside, `roll` decides what comes next when all are replaced,
and `keeper` is the process that starts them, starts them again, replaces and stops them.
"""
