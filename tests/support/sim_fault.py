"""Define a fault of the simulated disk: which calls of an operation fail, and how."""

from dataclasses import dataclass


@dataclass(slots=True)
class Fault:
    """A fault ordered by ``SimFS.fail``.

    :ivar operation: the method that fails; ``"*"`` for all.
    :ivar skip: number of calls that still succeed.
    :ivar left: number of calls that then fail; None for all.
    :ivar number: the ``errno``; None for an append that is only short.
    :ivar written: bytes that a failing append or preallocation still writes.
    :ivar met: number of calls that have failed.
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
