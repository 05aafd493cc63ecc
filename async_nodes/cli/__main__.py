"""``python -m async_nodes.cli VERB``: how the command line starts its own processes."""

import sys

from async_nodes.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
