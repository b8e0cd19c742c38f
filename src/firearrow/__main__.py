"""`python -m firearrow` is `firearrow`."""

from firearrow.cli.main import main

if __name__ == "__main__":
    main()
