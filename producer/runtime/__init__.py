"""Services of the process: clocks, forks, signals, logging, compiled code and the interpreter lock."""
