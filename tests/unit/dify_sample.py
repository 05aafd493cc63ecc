"""A small sound plugin to break in tests."""

from __future__ import annotations

MANIFEST = """\
version: 0.1.0
type: plugin
author: somebody
name: sample
label: {en_US: Sample, zh_Hans: 样例}
description: {en_US: A sample, zh_Hans: 一个样例}
icon: icon.svg
created_at: 2026-11-30T00:00:00Z
resource: {memory: 268435456, permission: {storage: {enabled: true, size: 1048576}}}
plugins: {tools: [provider/sample.yaml], endpoints: [group/sample.yaml]}
meta:
  version: 0.0.1
  arch: [amd64, arm64]
  runner: {language: python, version: "3.12", entrypoint: main}
"""
PROVIDER = """\
identity:
  author: somebody
  name: sample
  label: {en_US: Sample, zh_Hans: 样例}
  description: {en_US: A sample, zh_Hans: 一个样例}
  icon: icon.svg
credentials_for_provider:
  key: {type: secret-input, required: true, label: {en_US: Key, zh_Hans: 密钥}}
tools: [tools/say.yaml]
extra: {python: {source: provider/sample.py}}
"""
TOOL = """\
identity: {author: somebody, name: say, label: {en_US: Say, zh_Hans: 说}}
description: {human: {en_US: Says it, zh_Hans: 说出来}, llm: Says it}
parameters:
  - name: how
    type: select
    form: form
    default: loud
    label: {en_US: How, zh_Hans: 方式}
    human_description: {en_US: How to say it, zh_Hans: 怎么说}
    options:
      - {value: loud, label: {en_US: Loud, zh_Hans: 大声}}
      - {value: low, label: {en_US: Low, zh_Hans: 小声}}
output_schema: {type: object, properties: {said: {type: string}}}
extra: {python: {source: tools/say.py}}
"""
GROUP = "endpoints: [endpoints/hear.yaml]\n"
ENDPOINT = "path: /hear\nmethod: POST\nextra: {python: {source: endpoints/hear.py}}\n"


def sample() -> dict[str, bytes]:
    """Return the files of a plugin that a daemon takes."""
    texts = {
        "README.md": "# Sample\n",
        "_assets/icon.svg": "<svg xmlns='http://www.w3.org/2000/svg'/>",
        "endpoints/hear.py": "from dify_plugin import Endpoint\n\nclass Hear(Endpoint): ...\n",
        "endpoints/hear.yaml": ENDPOINT,
        "group/sample.yaml": GROUP,
        "main.py": "print()\n",
        "manifest.yaml": MANIFEST,
        "provider/sample.py": "import dify_plugin\n\nclass P(dify_plugin.ToolProvider): ...\n",
        "provider/sample.yaml": PROVIDER,
        "readme/README_zh_Hans.md": "# 样例\n",
        "requirements.txt": "dify-plugin>=0.10\n",
        "tools/say.py": "from dify_plugin import Tool\n\nclass Say(Tool): ...\n",
        "tools/say.yaml": TOOL,
    }
    return {name: text.encode() for name, text in texts.items()}
