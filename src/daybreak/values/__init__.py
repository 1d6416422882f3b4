"""Arguments and results as JSON that comes back equal, or a refusal that says where it would not.

`encode` and `decode` need no types: what JSON cannot say is written with its type (tags.py). `Arguments` and `Result`
read a function's annotations first (annotations.py) and so also carry enums, dataclasses, models and structs.
"""

from daybreak.values.arguments import Arguments
from daybreak.values.result import Result
from daybreak.values.secret import Secret
from daybreak.values.show import shown
from daybreak.values.tagged_json import DEPTH_LIMIT, decode, encode

__all__ = ["DEPTH_LIMIT", "Arguments", "Result", "Secret", "decode", "encode", "shown"]
