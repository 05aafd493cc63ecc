"""The command line: what a person types, sees and pastes.

Outermost of all: it starts the other parts as processes and speaks to them over HTTP, like any
client. It knows nothing of how a task is stored or run.
"""
