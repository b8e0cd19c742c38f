"""The command line: servers (`up`, `namesrv`, `broker`), clients (`send`, `consume`, `bench`), administration and Spark jobs.

main.py has the tree of commands, command.py what they are built from, arguments.py the grammar of values, terminal.py the output.
May import every other package except `testing`.
"""
