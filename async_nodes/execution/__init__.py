"""Execute: from a wake-up message to the end of an attempt. Never imports the access layer."""
