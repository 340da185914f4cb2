from ..primitives import Buffer

REVISION: int

def lower_part(
    data: Buffer,
    magic: int,
    attributes: int,
    shift: int,
    base_timestamp: int,
    append_time: int,
    position: int,
    record_count: int,
    before: int,
    first: int,
    last: int,
    room: int,
    at_least_one: bool,
    /,
) -> tuple[bytearray, int, int, int, int, int, int] | None: ...
def lower_batches(
    data: Buffer, magic: int, position: int, fetch_offset: int, is_any_aborted: bool, room: int, /
) -> tuple[bytearray, int, int, int, int] | None: ...
