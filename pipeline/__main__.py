"""python -m pipeline -> answer.main, ended by signals as Ctrl-C ends it. Knows nothing else."""

import signal
import sys

from pipeline.commands.answer import main

if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGHUP):  # by default no `finally` would run: no clean-up
        if signal.getsignal(number) == signal.SIG_DFL:  # not under nohup
            signal.signal(number, lambda number, frame: sys.exit(128 + number))
    sys.exit(main())
