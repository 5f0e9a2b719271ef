"""The embedded model: deterministic policies behind an OpenAI-compatible endpoint.

Runs in a process of its own (`ScriptedServer`, or `python -m bfcl_rollout.scripted`) and imports neither
verifiers nor BFCL, so it starts in a fraction of a second.
"""

from bfcl_rollout.scripted.policies import POLICIES, ModelNameError, Policy, UnknownPolicyError, register, resolve
from bfcl_rollout.scripted.process import ScriptedServer
from bfcl_rollout.scripted.reply import Body, Call, Reply

__all__ = [
    "POLICIES",
    "Body",
    "Call",
    "ModelNameError",
    "Policy",
    "Reply",
    "ScriptedServer",
    "UnknownPolicyError",
    "register",
    "resolve",
]
