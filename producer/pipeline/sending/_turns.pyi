from .turns import PureTurns as Turns

__all__ = ["Turns"]
