"""Step 3, execute: how each provider of models is spoken to, without its SDK.

Pure: a request goes in and a call comes out, bytes of an answer go in and pieces come out. One
module per wire (`openai`, `anthropic`, `ollama`; `vectors` for embeddings); `presets` says which
provider speaks which. Sends nothing and knows no task.
"""
