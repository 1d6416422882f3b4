"""Arrays and data frames as contents: numpy arrays as .npy, data frames of pandas and polars as Arrow files.

The libraries are imported only where a value of theirs is there. A value that would not come back equal is refused."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

from daybreak.core.errors import BadArguments, NotEncodable
from daybreak.values.errors import Refusal
from daybreak.values.file import is_collecting, read_content, write_content

# The name of each kind, and how its tag is named. Tags of contents begin with "file " (values/file.py).
_TAGS: Final = {
    ("numpy", "ndarray"): "file npy",
    ("pandas", "DataFrame"): "file pandas",
    ("polars", "DataFrame"): "file polars",
}


def array_tag(value: object) -> str | None:
    """The tag of an array or a data frame; None if the value is neither, or of a subclass."""
    kind = type(value)
    library = sys.modules.get(kind.__module__.partition(".")[0])
    if library is None or getattr(library, kind.__name__, None) is not kind:
        return None
    return _TAGS.get((library.__name__, kind.__name__))


def write_array(value: Any, tag: str) -> list[object]:
    """The tag and the description of an array or a data frame."""
    if not is_collecting():
        write_content(b"", f"the {_what(value)}")  # raises before it is encoded in vain
    try:
        data = _WRITERS[tag](value)
    except ImportError as error:
        raise Refusal(NotEncodable, f"it needs pyarrow: pip install 'daybreak[tables]' ({error})") from None
    except (ValueError, TypeError, AssertionError, NotImplementedError) as error:
        reason = " ".join(str(error).split())[:200]
        raise Refusal(NotEncodable, f"the {_what(value)} would not be decoded equal: {reason}") from None
    return [tag, {**write_content(data, "an array"), "what": _what(value)}]


def read_array(tag: str) -> Callable[[Mapping[str, Any]], Any]:
    """What decodes the description of one kind."""

    def read(described: Mapping[str, Any]) -> Any:
        data = read_content(described)
        try:
            return _READERS[tag](data)
        except ImportError as error:
            raise Refusal(BadArguments, f"the stored {described.get('what', 'array')} needs {error.name}") from None

    return read


def are_same(sent: Any, back: Any) -> bool | None:
    """Whether two arrays or data frames are equal; None if the second is neither."""
    tag = array_tag(back)
    if tag is None:
        return None
    return _WRITERS[tag](sent) == _WRITERS[tag](back)


def _what(value: Any) -> str:
    shape = " x ".join(map(str, value.shape)) or "scalar"
    if type(value).__name__ == "ndarray":
        return f"numpy array {value.dtype} {shape}"
    return f"{type(value).__module__.partition('.')[0]} data frame {shape}"


# -- numpy -------------------------------------------------------------------------------------------------------------


def _write_npy(value: Any) -> bytes:
    import numpy as np  # noqa: PLC0415 - imported by whoever made the value

    if value.dtype.hasobject:
        raise ValueError("it holds Python objects; convert it to numbers or texts of one type")
    if np.lib.format.descr_to_dtype(np.lib.format.dtype_to_descr(value.dtype)) != value.dtype:
        raise ValueError(f"its type {value.dtype} cannot be written")
    out = io.BytesIO()
    np.lib.format.write_array(out, value, allow_pickle=False)
    return out.getvalue()


def _read_npy(data: bytes) -> Any:
    import numpy as np  # noqa: PLC0415

    return np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)


# -- pandas ------------------------------------------------------------------------------------------------------------


def _write_pandas(value: Any) -> bytes:
    pa = import_module("pyarrow")  # without type hints
    table = pa.Table.from_pandas(value)
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)
    data = out.getvalue()
    import_module("pandas").testing.assert_frame_equal(value, _read_pandas(data), check_exact=True, check_freq=False)
    return data


def _read_pandas(data: bytes) -> Any:
    pa = import_module("pyarrow")
    with pa.ipc.open_stream(io.BytesIO(data)) as stream:
        return stream.read_all().to_pandas()


# -- polars ------------------------------------------------------------------------------------------------------------


def _write_polars(value: Any) -> bytes:
    import polars as pl  # noqa: PLC0415
    from polars.testing import assert_frame_equal  # noqa: PLC0415

    if any(dtype == pl.Object for dtype in value.dtypes):
        raise ValueError("it holds Python objects")
    out = io.BytesIO()
    value.write_ipc(out)
    data = out.getvalue()
    assert_frame_equal(value, _read_polars(data), check_exact=True)
    return data


def _read_polars(data: bytes) -> Any:
    import polars as pl  # noqa: PLC0415

    return pl.read_ipc(io.BytesIO(data))


_WRITERS: Final[dict[str, Callable[[Any], bytes]]] = {
    "file npy": _write_npy,
    "file pandas": _write_pandas,
    "file polars": _write_polars,
}
_READERS: Final[dict[str, Callable[[bytes], Any]]] = {
    "file npy": _read_npy,
    "file pandas": _read_pandas,
    "file polars": _read_polars,
}
ARRAY_TAGS: Final = tuple(_READERS)
