"""`python -m firearrow.cli` is `firearrow`."""

from firearrow.cli.main import main

main()
