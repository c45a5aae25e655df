"""python -m pipeline -> cli.main, or for `glitch MODEL` glitch_cli.main. Knows nothing else.

Both end by signals the way Ctrl-C ends them.
"""

import signal
import sys

from pipeline import cli, glitch_cli

if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGHUP):  # by default no `finally` would run: no clean-up
        if signal.getsignal(number) == signal.SIG_DFL:  # not under nohup
            signal.signal(number, lambda number, frame: sys.exit(128 + number))
    if sys.argv[1:2] == ["glitch"]:  # as a prompt of its own it is written: -- glitch
        sys.exit(glitch_cli.main(sys.argv[2:]))
    sys.exit(cli.main())
