"""Bytes as people read them."""

_MIB = 1 << 20
_WHOLE_MIB_UNTIL = 10_240


def bytes_text(num_bytes: int) -> str:
    """MiB, rounded up so that "free 72 MiB" is always enough; GiB from 10 of them on; exact below 1 MiB."""
    if abs(num_bytes) < _MIB:
        return f"{num_bytes:,} bytes"
    mib = -(-num_bytes // _MIB)
    return f"{mib:,} MiB" if mib < _WHOLE_MIB_UNTIL else f"{mib / 1024:,.1f} GiB"
