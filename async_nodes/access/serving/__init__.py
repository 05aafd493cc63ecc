"""Step 5, expose: the process itself. Sockets, HTTP, TLS, several processes on one port."""
