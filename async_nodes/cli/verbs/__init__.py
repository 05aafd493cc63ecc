"""One module per verb of the command line; each holds a click command named ``command``.

Imported only when its verb is used, so that ``--help`` answers at once.
"""
