"""The base of the structs in _bindings.py."""
import ctypes as c


class Sized(c.Structure):
    """A struct that starts with its own size; a new one has it set, in structs inside it too, and
    all else zero."""

    def __init__(self):
        super().__init__(c.sizeof(self))
        for name, kind in self._fields_:
            if issubclass(kind, Sized):
                getattr(self, name).size = c.sizeof(kind)
