"""Look at an installation the way its user would: from the settings to the last event of a task.

`check` says what a check is, `local` holds those of this machine, `store` those of Redis, `server`
those that go through the web process, and `report` shows them.
"""
