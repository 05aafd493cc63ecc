"""What surrounds the plugin in ``dify/``: check its sources, pack, sign and verify it.

The plugin itself runs inside Dify, in an environment of its own, and imports nothing of this
package. Rules and formats are those of Dify's plugin daemon, read in its source (August 2026).
"""
