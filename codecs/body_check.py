"""Walks a message body along its schema before the protocol library decodes it.

The library believes lengths and counts: it cuts short silently, grows a number without end from bytes that say "more
follows", and copies the rest of the body for each tagged section. This walk checks every bound first, allocates nothing
and bounds what the decoding can cost. Reads the library's schema objects; imports nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct, error
from typing import Any, Final

from .errors import LimitExceeded, Malformed, Truncated
from .primitives import read_unsigned_varint

ELEMENTS_MAX: Final = 500_000
"""Array elements in one body. The library makes an object of about 150 bytes of each; a listing of all groups or
partitions of a large cluster has fewer."""
TAG_COPY_BYTES_MAX: Final = 64 << 20
"""Bytes that the library may copy for tagged sections: it copies the rest of the body for each that is not empty."""

_FIXED_BYTES: Final = {
    "int8": 1,
    "bool": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "bitfield": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
}
_int16_at: Final = Struct(">h").unpack_from
_int32_at: Final = Struct(">i").unpack_from


class _Budget:
    """What one body may still use."""

    __slots__ = ("elements", "tag_copy_bytes")

    def __init__(self) -> None:
        self.elements = ELEMENTS_MAX
        self.tag_copy_bytes = TAG_COPY_BYTES_MAX

    def take_elements(self, count: int, what: str) -> None:
        self.elements -= count
        if self.elements < 0:
            raise LimitExceeded(f"{what}: more than {ELEMENTS_MAX} array elements in one body")


_Step = Callable[[memoryview, int, _Budget], int]
Check = Callable[[memoryview], int]


def compile_check(struct_field: Any, api_version: int, *, flexible: bool, strict_nulls: bool) -> Check:
    """Return a function that walks one body and returns its size in bytes; it raises WireError for what is wrong.

    ``struct_field`` is the library's schema of the message. ``strict_nulls`` refuses null strings and bytes where the
    schema does not allow them. Null arrays are always refused there: code that loops over them would break.
    """
    walk = _Compiler(api_version, flexible, strict_nulls).struct(struct_field, tagged=flexible)

    def check(body: memoryview) -> int:
        try:
            end = walk(body, 0, _Budget())
        except (error, IndexError):
            raise Truncated(f"body: {len(body)} bytes end within a field") from None
        if end > len(body):
            raise Truncated(f"body: its fields need {end} bytes, {len(body)} are there")
        return end

    return check


class _Compiler:
    """Makes steps out of schema fields, for one version."""

    def __init__(self, api_version: int, flexible: bool, strict_nulls: bool) -> None:
        self._version = api_version
        self._flexible = flexible
        self._strict_nulls = strict_nulls

    def struct(self, struct_field: Any, *, tagged: bool | None) -> _Step:
        """``tagged``: True = a tagged section ends it, None = an empty one does (inside a tag), False = none."""
        steps: list[_Step | int] = []
        for field in struct_field.untagged_fields(self._version):
            step = self._field(field, tagged, self._nullable(field))
            if isinstance(step, int) and steps and isinstance(steps[-1], int):
                steps[-1] += step
            else:
                steps.append(step)
        if tagged:
            steps.append(self._tagged_section(struct_field))
        elif tagged is None:
            steps.append(1)
        return _in_order(steps)

    def _nullable(self, field: Any) -> bool:
        return bool(field.nullable_for_version_q(self._version))

    def _field(self, field: Any, tagged: bool | None, nullable: bool) -> _Step | int:
        if field.is_struct_array():
            return self._array(field.name, self.struct(field.array_of, tagged=tagged), nullable)
        if field.is_array():
            # In the library the elements of a nullable array count as nullable, too; on the wire they never are.
            return self._array(field.name, self._field(field.array_of, tagged, False), nullable)
        if field.is_struct():
            inner = self.struct(field, tagged=tagged)
            return _nullable_struct(inner) if nullable else inner
        if field.type_str in _FIXED_BYTES:
            return _FIXED_BYTES[field.type_str]
        return self._sized(field.name, nullable or not self._strict_nulls, short=field.type_str == "string")

    def _sized(self, name: str, nullable: bool, *, short: bool) -> _Step:
        """A string or bytes."""
        length_bytes = 2 if short else 4
        length_at = _int16_at if short else _int32_at
        flexible = self._flexible

        def step(body: memoryview, position: int, budget: _Budget) -> int:
            if flexible:
                length, position = read_unsigned_varint(body, position)
                length -= 1
            else:
                (length,) = length_at(body, position)
                position += length_bytes
            if length >= 0:
                end: int = position + length
                if end > len(body):
                    raise Truncated(f"{name} at {position}: {length} bytes, {len(body) - position} there")
                return end
            if length != -1 or not nullable:
                raise Malformed(f"{name} at {position}: length {length}")
            return position

        return step

    def _array(self, name: str, element: _Step | int, nullable: bool) -> _Step:
        flexible = self._flexible

        def step(body: memoryview, position: int, budget: _Budget) -> int:
            if flexible:
                count, position = read_unsigned_varint(body, position)
                count -= 1
            else:
                (count,) = _int32_at(body, position)
                position += 4
            if count < 0:
                if count != -1 or not nullable:
                    raise Malformed(f"{name} at {position}: count {count}")
                return position
            # No element is smaller than a byte.
            if count > len(body) - position:
                raise Truncated(f"{name} at {position}: {count} elements, {len(body) - position} bytes there")
            budget.take_elements(count, name)
            if isinstance(element, int):
                return position + element * count
            for _ in range(count):
                position = element(body, position, budget)
            return position

        return step

    def _tagged_section(self, struct_field: Any) -> _Step:
        known: dict[int, _Step] = {}
        for field in struct_field.tagged_fields(self._version)._fields:
            step = self._field(field, None, self._nullable(field))
            known[field.tag] = _skip(step) if isinstance(step, int) else step

        def section(body: memoryview, position: int, budget: _Budget) -> int:
            if body[position] == 0:
                return position + 1
            budget.tag_copy_bytes -= len(body) - position
            if budget.tag_copy_bytes < 0:
                raise LimitExceeded(f"tagged fields at {position}: too many sections for a body of {len(body)} bytes")
            count, position = read_unsigned_varint(body, position)
            budget.take_elements(count, "tagged fields")
            for _ in range(count):
                tag, position = read_unsigned_varint(body, position)
                size, position = read_unsigned_varint(body, position)
                end = position + size
                if end > len(body):
                    raise Truncated(f"tag {tag} at {position}: {size} bytes, {len(body) - position} there")
                if tag in known and known[tag](body, position, budget) != end:
                    raise Malformed(f"tag {tag} at {position}: its value is not {size} bytes long")
                position = end
            return position

        return section


def _in_order(steps: Sequence[_Step | int]) -> _Step:
    def walk(body: memoryview, position: int, budget: _Budget) -> int:
        for step in steps:
            position = position + step if isinstance(step, int) else step(body, position, budget)
        return position

    return walk


def _nullable_struct(inner: _Step) -> _Step:
    def step(body: memoryview, position: int, budget: _Budget) -> int:
        return position + 1 if body[position] == 0xFF else inner(body, position + 1, budget)

    return step


def _skip(size: int) -> _Step:
    return lambda body, position, budget: position + size
