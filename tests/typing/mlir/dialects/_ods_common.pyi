from typing import Any

_cext: Any
