"""Read files and directories."""

from logwright.codec.option import read_secrets_with
from logwright.readers.secrets import read_secret

read_secrets_with(read_secret)
