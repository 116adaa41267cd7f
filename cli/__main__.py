"""`python -m tensortune.cli`: the same as `tensortune`."""

from .app import main

main()
