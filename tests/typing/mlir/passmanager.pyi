from typing import Any

PassManager: Any
