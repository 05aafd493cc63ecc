"""What `async-nodes chaos` does: break an installation on purpose and check what it promises."""
