"""What all tests share: modules in tests/support can be imported by name."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent / "support"))
