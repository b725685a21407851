"""Custom calls: what each library call of a compiled program costs, one file per library, and the registration of users' own calls.

`price_call` looks the target up in the registry; one that is not registered has no price. `price_fused_call` does the same for a call
that a fusion wraps with slices. `register_call` adds a user's function.
"""

from .fused import price_fused_call
from .pricing import CustomCall, call_key, forget_call, known_targets, price_call, register_call

__all__ = ["CustomCall", "call_key", "forget_call", "known_targets", "price_call", "price_fused_call", "register_call"]
