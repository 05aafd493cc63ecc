"""What Dify's daemon starts."""

import os

# The SDK gives Dify 5 s for the next piece of a file; it reads this as it is imported.
os.environ.setdefault("HTTPX_TIMEOUT", "60")

from dify_plugin import DifyPluginEnv, Plugin

# A call may last as long as Dify lets it, and many at once are the purpose of this plugin.
plugin = Plugin(DifyPluginEnv(MAX_REQUEST_TIMEOUT=600, MAX_WORKER=1000))

if __name__ == "__main__":
    plugin.run()
