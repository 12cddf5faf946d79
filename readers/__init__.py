"""Read files and directories."""

from logwright.codec.host import provide
from logwright.readers.local_host import LocalHost

provide(LocalHost())
