"""Pheby's own codec for the codec runner: one frame a line in, what it makes of it out."""

from __future__ import annotations

import json
import sys

from pheby_protocol.codec import DecodeError, decode, encode

for line in sys.stdin:
    asked = json.loads(line)
    try:
        answer = {"valid": True, "wire": encode(decode(asked["wire"]))}
    except DecodeError:
        answer = {"valid": False}
    print(json.dumps({"id": asked["id"]} | answer), flush=True)
