"""The version of the product, in the one place that packaging and the running program both read.

Core level: imports nothing.
"""

from typing import Final

__version__: Final = "0.1.0"
