from ..primitives import Buffer

REVISION: int

def raise_part(
    data: Buffer,
    position: int,
    magic: int,
    missing_timestamp: int,
    record_count: int,
    base_timestamp: int,
    max_timestamp: int,
    room: int,
    /,
) -> tuple[bytearray, int, int, int, int] | None: ...
