"""Arguments and results as JSON: a value is decoded equal to what was encoded, or it is refused with an error.

`encode` and `decode` need no types: a value that JSON cannot express is written with its type (tagged_json.py).
`Arguments` and `Result` read a function's annotations (annotations.py), and so also support enums, dataclasses, models
and structs.
"""

from daybreak.values.arguments import Arguments
from daybreak.values.display import shown
from daybreak.values.file import File
from daybreak.values.result import Result
from daybreak.values.secret import Secret
from daybreak.values.tagged_json import DEPTH_LIMIT, decode, encode

__all__ = ["DEPTH_LIMIT", "Arguments", "File", "Result", "Secret", "decode", "encode", "shown"]
