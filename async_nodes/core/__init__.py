"""The pure heart: states, decisions, records and contracts on plain data.

Nothing in here does I/O, reads a clock or keeps global state, and nothing outside the
standard library is imported. Everything else in the package may import from here.
"""
