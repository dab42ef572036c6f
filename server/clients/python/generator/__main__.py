import sys

from .document import Unsupported
from .files import write

if len(sys.argv) != 1:
    sys.exit("usage: python3 -m generator")
try:
    write()
except Unsupported as error:
    sys.exit(f"generator: {error}: extend the generator")
