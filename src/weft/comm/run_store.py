"""The store of a run as its ranks and its launcher read it: only what carries the run's token is believed.

torch's store takes whatever anybody writes who reaches its port. So each value is written with a proof, an
HMAC-SHA-256 of its key and itself by the token that the launcher hands to its ranks; a value without it is as
if it were not there. Ranks under torchrun have a token where WEFT_TOKEN is set alike for all of them; else
the proof tells no more than that weft wrote it.
"""

import hashlib
import hmac
import os
import secrets
import sys
from typing import TYPE_CHECKING

from weft.errors import InputError

if TYPE_CHECKING:
    from weft.comm.rendezvous import Store

TOKEN = "WEFT_TOKEN"
_LEAST = 16  # characters: fewer are guessed
_NOTHING = "?"  # no value that is written here, as those are longer
_TOLD = 8  # lines of what was ignored; who floods the store does not flood the terminal


def new_token() -> str:
    """Return the token of a run that is launched: the user's own, or one that nobody can guess."""
    return given_token() or secrets.token_hex(32)


def given_token() -> str:
    """Return the token that the environment hands to this process; empty where there is none."""
    token = os.environ.get(TOKEN, "")
    if token and len(token) < _LEAST:
        raise InputError(
            f"environment variable {TOKEN} must have at least {_LEAST} characters, which nobody can guess"
        )
    return token


class RunStore:
    """A store whose values are texts that are proved by a token."""

    def __init__(self, store: "Store", token: str | None = None, *, prefix: str = "") -> None:
        self.plain = store
        """What torch's own process groups write to, which know no token."""
        self.prefix = prefix
        self._token = given_token() if token is None else token
        self._told: set[str] = set()

    def within(self, name: str) -> "RunStore":
        """Return the part of the store whose keys begin with a name."""
        from weft.comm.rendezvous import PrefixStore

        return RunStore(PrefixStore(name, self.plain), self._token, prefix=f"{self.prefix}{name}/")

    def set(self, key: str, text: str) -> None:
        """Write a value."""
        self.plain.set(key, self._proved(key, text))

    def post(self, key: str, text: str) -> None:
        """Write a value unless there is one: the first stays, where it is proved."""
        self.plain.compare_set(key, "", self._proved(key, text))
        if self.read(key) is None:
            self.set(key, text)

    def swap(self, key: str, before: str | None, text: str) -> bool:
        """Write a value where the one before is still there, None for no value; return whether it was.

        Of two members that swap from the same value one does it; where both write the same, both are told so.
        """
        proved = self._proved(key, text)
        expected = "" if before is None else self._proved(key, before)
        return bytes(self.plain.compare_set(key, expected, proved)) == proved.encode()

    def delete(self, key: str) -> None:
        """Remove a key."""
        self.plain.delete_key(key)

    def read(self, key: str) -> str | None:
        """Return a value; None where there is none, or none that can be believed. It never waits for one."""
        # `get` waits for a key that is not there, and `check` before it says nothing of a moment later.
        found = bytes(self.plain.compare_set(key, _NOTHING, _NOTHING))
        if found == _NOTHING.encode():
            return None
        proof, _, value = found.partition(b" ")
        if not hmac.compare_digest(proof, self._proof(key, value)):
            self._tell(key)
            return None
        return value.decode(errors="replace")

    def read_all(self, keys: list[str]) -> list[str] | None:
        """Return the values of some keys; None where one of them cannot be read yet."""
        if not self.plain.check(keys):
            return None
        values = [value for value in map(self.read, keys) if value is not None]
        return values if len(values) == len(keys) else None

    def has(self, *keys: str) -> bool:
        """Return whether all of some keys have values that can be believed."""
        return self.read_all(list(keys)) is not None

    def doubted(self, key: str) -> bool:
        """Return whether there is a value that cannot be believed."""
        return self.plain.check([key]) and self.read(key) is None

    def _proved(self, key: str, text: str) -> str:
        value = text.encode()
        return f"{self._proof(key, value).decode()} {text}"

    def _proof(self, key: str, value: bytes) -> bytes:
        said = f"{self.prefix}{key}\n".encode() + value
        return hmac.new(self._token.encode(), said, hashlib.sha256).hexdigest().encode()

    def _tell(self, key: str) -> None:
        if key in self._told or len(self._told) >= _TOLD:
            return
        self._told.add(key)
        sys.stderr.write(
            f"weft: ignored what was written to the store of this run under {self.prefix}{key}: it does not "
            f"carry the run's token ({TOKEN})\n"
        )
