"""A fault of the simulated disk: which calls of which operation fail, and how."""

from dataclasses import dataclass


@dataclass(slots=True)
class Fault:
    """What ``SimFS.fail`` ordered.

    :ivar operation: the method that fails; ``"*"`` for all.
    :ivar skip: how many calls still succeed.
    :ivar left: how many then fail; None for all.
    :ivar number: the number of the error; None for an append that is only short.
    :ivar written: bytes that an append, or room that is laid out, gets nevertheless.
    :ivar met: how many calls have failed.
    """

    operation: str
    skip: int
    left: int | None
    number: int | None
    written: int = 0
    met: int = 0

    def strikes(self, operation: str) -> bool:
        if self.operation not in (operation, "*") or self.left == 0:
            return False
        if self.skip:
            self.skip -= 1
            return False
        if self.left is not None:
            self.left -= 1
        self.met += 1
        return True
